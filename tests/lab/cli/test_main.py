"""The command line as a whole: verbs, flags, errors, exit codes."""

import inspect
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import version

import pytest

from snopt.lab.cli import main as module
from snopt.lab.cli.main import VERBS, main
from snopt.lab.cli.options import RunOptions

COMMON = "scale iterations epochs until max_seconds set quiet"
FLAGS = {
    "train": f"optimizer lr seed out resume overwrite settings horizon_policy tensorboard {COMMON}",
    "compare": f"optimizers seeds out {COMMON}",
    "sweep": f"optimizer search trials seed out storage {COMMON}",
    "report": "out format",
    "paper": "scale tasks out page records workers quiet",
    "data": "root",
    "info": "",
}
SCREEN = 24


def flags_of(verb: str) -> str:
    names = [
        name
        for name, parameter in inspect.signature(VERBS[verb]).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    common = " ".join(field.name for field in fields(RunOptions))
    return " ".join(names).replace("common", common)


def test_the_set_of_flags_is_frozen():
    """A new flag is a decision: settings of a run have --set, and this list says what has not."""
    assert {verb: flags_of(verb) for verb in VERBS} == FLAGS


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_has_help(verb, capsys):
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    for flag in FLAGS[verb].split():
        assert f"--{flag.replace('_', '-')}" in out
    for name in inspect.signature(VERBS[verb]).parameters:
        assert f"        {name}: " in VERBS[verb].__doc__


def test_info_prints_versions_devices_and_threads(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for word in ("snopt", "torch", "torchdiffeq", "devices", "threads", version("snopt")):
        assert word in out


def test_version_is_that_of_the_distribution(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"snopt {version('snopt')}"


def test_no_verb_prints_help_with_every_verb(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("trian digits", "did you mean 'train' for 'trian'?"),
        ("train mnits", "did you mean 'mnist'?"),
        ("compare mnits", "did you mean 'mnist' for 'mnits'?"),
        ("train digits --lr fast", "--lr"),
        ("train digits --lr -1", "lr"),
        ("train digits --optimizer adam --lr -1", "learning rate"),
        ("train digits --optimizer adam --set momentum=0.5", "does not have this setting"),
        ("train digits --optimizer adam --set betas=2,3", "beta"),
        ("train digits --set solver.rtol=-1", "rtol"),
        ("train digits --set solver.horizon=0", "horizon"),
        ("train digits --set model.width=0", "at least 1"),
        ("train digits --set data.examples=0", "at least 1"),
        ("train digits --set train.keep=0", "at least 1"),
        ("train digits --max-seconds 0", "must be positive"),
        ("train digits --set on_divergence=rolback", "rollback"),
        ("train --resume nowhere --overwrite", "--resume takes task and settings"),
        ("train nomodule:task --iterations 3", "there is no module nomodule"),
        ("train json:nothing --iterations 3", "has no nothing"),
        ("train json:loads --iterations 3 --scale smoke", "--scale"),
        ("sweep digits --trials 0", "at least 1"),
        ("train digits --optimizer adma", "did you mean 'adam' for 'adma'?"),
        ("compare digits --optimizers snopt adma", "did you mean 'adam' for 'adma'?"),
        ("train digits --scale smokey", "did you mean 'smoke' for 'smokey'?"),
        ("train digits --iteration 3", "--iterations"),
        ("train digits --iterations many", "--iterations"),
        ("train digits --no-such-flag", "--no-such-flag"),
        ("data", "list"),
        ("train", "say what to train"),
        ("train digits --set lr=quick", "'quick' is not of type float"),
        ("train digits --set lr", "key=value"),
        ("train digits --set model.widht=3", "did you mean 'model.width'?"),
        ("train digits --set optimizer.name=adan", "did you mean 'adam'?"),
        ("train digits --until acuracy=0.9", "did you mean 'accuracy'?"),
        ("train digits --until accuracy=high", "'high' is not a number"),
        ("train digits --iterations 3 --epochs 2", "give one of them"),
        ("train digits --iterations 0", "at least 1"),
        ("train digits --resume nowhere", "--resume takes task and settings"),
        ("train --resume nowhere --seed 1", "--resume takes task and settings"),
        ("train digits --scale smoke --set solver.method=dopri6", "did you mean 'dopri"),
        ("compare digits --seeds 0", "nothing to compare"),
        ("data fetch", "say what to fetch"),
        ("data fetch mnits", "did you mean 'mnist'?"),
        ("paper accuu", "did you mean 'accu'?"),
        ("report", "say which runs"),
        ("train digits --set cosine=0", "cosine is 0; it must be at least 1"),
        ("train digits --set nodes=0", "nodes is 0; it must be at least 1"),
        ("train digits --set train.until=accuracy", "2 values with commas are needed"),
        ("train digits --optimizer adam --set betas=0.9", "2 values with commas are needed"),
        ("train digits --set model.stacks=3", "model.stacks: no effect on a model of kind 'flow'"),
        ("train spirals --set solver.horizon=2", "solver.horizon: no effect"),
        ("train digits --set gamma=0.5", "gamma: no effect without milestones"),
        ("train digits --set milestones=50", "milestones: no effect with gamma=1"),
        ("train digits --set cosine=9 milestones=5 gamma=0.1", "no effect with cosine"),
        ("train digits --set milestones=-5 gamma=0.1", "must be at least 1"),
        ("train digits --set horizon.every=5", "no effect with --horizon-policy fixed"),
        ("train digits --set conv=per_axis", "conv: no effect on a model of kind 'flow'"),
        ("train circle --optimizer adam --set rest_lr=0.1", "rest_lr: no effect"),
        ("train mnist --set model.kind=residual solver.rtol=0.1", "solver.rtol: no effect"),
        ("train digits --set solver.method=rk4 solver.atol=0.1", "which takes fixed steps"),
        ("train two_moons --set data.preprocessing=paper", "no effect on two_moons"),
        ("train digits --set lr=inf", "lr is inf; it must be finite"),
        ("train digits --set gamma=nan milestones=1", "gamma is nan"),
        ("train digits --set loss=cross_entropy", "loss: no effect with terminal=gradient"),
        ("train digits --set recurrent=true", "recurrent: no effect on a model of kind 'flow'"),
        ("train spirals --set rest_lr=0.1 fallback_lr=0.2", "no effect with fallback_lr"),
        ("train circle --set model.kinetic=-1", "kinetic is -1.0; it must be at least 0"),
        ("train digits --until accuracy=98", "accuracy=98 cannot be reached"),
        ("train digits --until loss=nan", "loss=nan cannot be reached"),
        ("sweep digits --set lr=0.1", "lr is searched"),
        ("sweep digits --set data.hold_out=false", "data.hold_out"),
        ("train json: --iterations 3", "json: is not module:function"),
        ("train :loads --iterations 3", ":loads is not module:function"),
        ("train json:loads --iterations 3 --set width", "key=value"),
        ("train digits --horizon-policy newton --set horizon.every=0", "every = 0"),
        ("train spirals --scale smoke --horizon-policy newton", "no single horizon"),
        ("train two_moons --set data.name=circle", "does not fit circle"),
        ("train spirals --scale smoke --set model.kind=flow", "does not fit spirals"),
        ("sweep digits --storage nowhere", "'nowhere' is not a database URL"),
        ("sweep digits --storage nosuch://x", "is not a database URL"),
    ],
)
def test_a_wrong_command_line_is_told_on_one_screen_and_ends_with_2(
    words, says, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= SCREEN


@pytest.mark.parametrize(
    "words",
    [
        "circle --set data.name=two_moons model.kind=flow",  # the recipe has a hypernetwork
        "articulary_word_recognition --optimizer adam --set cosine=300",  # instead of milestones
        "mnist --set conv=per_axis terminal=sampled loss=cross_entropy",
        "spirals --optimizer adam --set rest_lr=0.1",
        "digits --set milestones=50 gamma=0.1 data.preprocessing=paper",
        "digits --horizon-policy feedback --set horizon.every=5",
        "digits --until accuracy=1",
    ],
)
def test_settings_with_an_effect_are_accepted(words):
    assert main(["train", *words.split(), "--settings"]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train --resume nowhere", "is not a run folder"),
        ("report nowhere", "does not exist"),
        ("report .", "no run to report on"),
    ],
)
def test_an_error_is_a_sentence_and_ends_with_1(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 1
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= SCREEN


@pytest.mark.parametrize("words", ["train digits --scale tran", "compare digits --scale adm"])
def test_a_bad_scale_is_not_taken_for_another_name(words, capsys):
    assert main(words.split()) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_a_long_error_is_cut_to_a_screen(monkeypatch, capsys):
    def fail(_):
        raise ValueError("\n".join(map(str, range(100))))

    monkeypatch.setattr(module, "parse", fail)
    assert main(["info"]) == 1
    assert len(capsys.readouterr().err.splitlines()) <= SCREEN


def test_debug_shows_where_an_error_came_from(monkeypatch):
    with pytest.raises(ValueError, match="say what to train"):
        main(["train", "--debug"])
    monkeypatch.setenv("SNOPT_DEBUG", "1")
    with pytest.raises(ValueError, match="say what to train"):
        main(["train"])


def test_ctrl_c_ends_with_130(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "parse", interrupt)
    assert main(["info"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_without_tyro_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert main(["info"]) == 1
    assert "pip install 'snopt[lab]'" in capsys.readouterr().err


def test_what_may_be_left_out_is_never_offered_as_none(capsys):
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    assert not any(offer in shown for offer in ("|None", "None|", "{None"))
    assert "--iterations INT " in shown
    assert main(["compare", "digit"]) == 2
    assert "None" not in capsys.readouterr().err
    assert main(["train", "digits", "--iterations", "None"]) == 2


def test_there_is_completion_for_the_shell(capsys):
    assert main(["--tyro-print-completion", "bash"]) == 0
    out = capsys.readouterr().out
    assert "snopt_amortized" in out
    assert "--horizon-policy" in out


def test_python_m_snopt_is_the_same_command_and_imports_nothing_optional():
    code = (
        "import sys; from snopt.lab.cli.main import main; "
        "optional = {'tyro', 'rich', 'optuna', 'matplotlib', 'pooch', 'sklearn', 'tensorboard'}; "
        "sys.exit(f'imports {optional & set(sys.modules)}' if optional & set(sys.modules) else 0)"
    )
    light = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert light.returncode == 0, light.stderr
    result = subprocess.run(
        [sys.executable, "-m", "snopt", "infoo"], capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "did you mean 'info' for 'infoo'?" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
def test_a_reader_that_leaves_early_causes_no_traceback():
    command = subprocess.Popen(
        [sys.executable, "-m", "snopt", "train", "--help"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    command.stdout.close()  # before anything is written
    with command.stderr:
        assert command.stderr.read() == ""
    assert command.wait() == 141


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
@pytest.mark.parametrize("verb", ["train", "compare"])
def test_help_into_head_causes_no_traceback(verb):
    command = f"{sys.executable} -m snopt {verb} --help | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
