"""Each verb does its work."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from snopt.lab.cli.main import main
from snopt.lab.data import load, names
from snopt.lab.recipes import experiment_of
from snopt.lab.report import compare, read_runs
from snopt.lab.report.tables import headline
from snopt.lab.train import Outcome, read_records

SMOKE = ["--scale", "smoke", "--quiet"]


def words(text: str) -> list[str]:
    return [*text.split(), *SMOKE]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Default folders are relative: let them be in a place of the test's own."""
    monkeypatch.chdir(tmp_path)


def test_train_writes_a_run_folder_and_says_what_to_do_next(capsys):
    assert (
        main(words("train digits --optimizer adam --seed 3 --set lr=0.5 --set model.width=4")) == 0
    )
    config = experiment_of("out/digits/adam-seed3")
    assert (config.optimizer.name, config.optimizer.lr, config.model.width) == ("adam", 0.5, 4)
    assert config.train.seed == 3
    out = capsys.readouterr().out
    assert "finished after 3 iterations" in out
    assert "snopt report out/digits/adam-seed3" in out


def test_train_shows_progress_unless_quiet(capsys):
    assert main(["train", "digits", "--scale", "smoke"]) == 0
    assert "accuracy" in capsys.readouterr().err
    assert main(words("train digits --out quiet")) == 0
    assert capsys.readouterr().err == ""


def test_the_end_of_a_run_is_told_once(capsys):
    assert main(["train", "digits", "--scale", "smoke"]) == 0
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("finished") == 1
    assert "test accuracy" in shown.out


def test_train_lists_its_settings_and_reads_them_back(capsys):
    assert main(["train", "digits", "--optimizer", "adam", "--lr", "0.5", "--settings"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    listed = {line[:24].strip(): line[24:].strip() for line in shown.splitlines()}
    assert listed["lr"] == "0.5"
    assert listed["betas"] == "0.9,0.999"
    assert listed["amsgrad"] == "false"
    assert "damping" not in listed
    assert not Path("out").exists()
    again = ["train", "digits", "--optimizer", "adam", "--settings", "--set"]
    assert main([*again, *(f"{key}={value}" for key, value in listed.items())]) == 0
    assert capsys.readouterr().out == shown


def test_overwrite_replaces_a_run(capsys):
    assert main(words("train digits --out run")) == 0
    assert main(words("train digits --out run --optimizer adam --overwrite")) == 0
    assert experiment_of("run").optimizer.name == "adam"


OWN = """
import torch
from types import SimpleNamespace
from snopt.lab.train import Parts

class Numbers:
    def __len__(self):
        return 64
    def batch(self, indices):
        return torch.linspace(-1, 1, 64)[indices, None]

def loss(model, x):
    return (model(x) - 3 * x).square().mean()

def triple(seed, lr=0.5, momentum=0.0):
    torch.manual_seed(seed)
    task = SimpleNamespace(name="triple", metric="loss", mode="min", train=Numbers(),
                           valid=Numbers(), test=Numbers(), loss=loss,
                           metrics=lambda model, x: {"loss": loss(model, x)})
    model = torch.nn.Linear(1, 1)
    return task, Parts(model, torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum))
"""


def test_a_task_of_ones_own_trains_and_resumes(capsys, monkeypatch):
    Path("mytask.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "mytask", raising=False)
    command = "train mytask:triple --iterations 4 --seed 3 --lr 0.25 --quiet --set"
    assert main([*command.split(), "momentum=0.5", "train.batch_size=16"]) == 0
    assert "test loss" in capsys.readouterr().out
    config = json.loads(Path("out/triple/seed3/config.json").read_text())
    assert config["own"]["arguments"] == {"seed": 3, "lr": 0.25, "momentum": 0.5}
    assert config["train"]["batch_size"] == 16
    resume = "train --resume out/triple/seed3 --iterations 6 --until loss=1e-9 --quiet"
    assert main(resume.split()) == 0
    assert read_records("out/triple/seed3")[-1]["iteration"] == 6
    for wrong, says in [
        ("train mytask:triple", "would never end"),
        ("train mytask:triple --iterations 3 --set widht=3", "unknown setting 'widht'"),
        ("train mytask:triple --iterations 3 --set train.batch_size=x", "is not of type int"),
        ("train mytask:OWN --iterations 3", "has no OWN"),
        ("train mytask:Numbers --iterations 3", "must return a task"),
    ]:
        assert main([*wrong.split(), "--quiet"]) in (1, 2)
        assert says in capsys.readouterr().err


def test_a_function_and_its_record_have_one_seed(monkeypatch):
    Path("mytask.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "mytask", raising=False)
    for folder, given in ("a", "--seed 5"), ("b", "--set seed=5"), ("c", "--set train.seed=5"):
        command = f"train mytask:triple --iterations 1 --quiet --out {folder} {given}"
        assert main(command.split()) == 0
        config = json.loads(Path(folder, "config.json").read_text())
        assert (config["own"]["arguments"]["seed"], config["seed"]) == (5, 5)


def test_a_function_may_need_an_argument_or_take_any(monkeypatch, capsys):
    needs, takes = "needs = lambda lr: triple(0, lr)", "takes = lambda **any: triple(0, **any)"
    Path("mytask.py").write_text(f"{OWN}\n{needs}\n{takes}\n")
    monkeypatch.delitem(sys.modules, "mytask", raising=False)
    command = "train mytask:{} --iterations 1 --quiet --out any"
    assert main(command.format("needs").split()) == 2
    assert "mytask:needs needs lr; give --set lr=VALUE" in capsys.readouterr().err
    assert main([*command.format("takes").split(), "--set", "lr=0.25"]) == 0
    config = json.loads(Path("any/config.json").read_text())
    assert config["own"]["arguments"] == {"lr": 0.25}


def test_train_refuses_a_folder_that_holds_a_run_and_resume_goes_on(capsys):
    assert main(words("train digits --out run")) == 0
    assert main(words("train digits --out run")) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert main(["train", "--resume", "run", "--iterations", "5", "--quiet"]) == 0
    assert "finished after 5 iterations" in capsys.readouterr().out
    assert read_records("run")[-1]["iteration"] == 5


def test_train_stops_at_its_target(capsys):
    assert main(words("train digits --iterations 50 --until accuracy=0.05")) == 0
    assert "target after" in capsys.readouterr().out


def test_train_learns_the_horizon():
    assert main(words("train digits -o run --horizon-policy feedback --set horizon.every=1")) == 0
    steps = [record for record in read_records("run") if record["kind"] == "step"]
    assert steps[-1]["horizon"] != [1.0]


def test_settings_reach_what_has_a_flag_of_its_own():
    settings = "--set horizon.policy=feedback horizon.every=1 train.seed=4 optimizer.name=adam"
    assert main(words(f"train digits {settings}")) == 0
    config = experiment_of("out/digits/adam-seed4")
    assert (config.horizon.policy, config.train.seed) == ("feedback", 4)


def test_an_interrupted_run_ends_with_130_and_says_how_to_resume(monkeypatch, capsys):
    monkeypatch.setattr(
        sys.modules["snopt.lab.cli.train"],
        "run",
        lambda _, folder, **__: Outcome("interrupted", 7, 1.0, folder=Path(folder)),
    )
    assert main(["train", "digits", "--out", "a run", *SMOKE]) == 130
    assert capsys.readouterr().out.splitlines() == [
        "interrupted after 7 iterations and 1.0 s",
        "resume with: snopt train --resume 'a run'",
    ]


def test_a_diverged_run_ends_with_3(capsys):
    assert main(words("train digits --optimizer sgd --iterations 30 --set lr=1e9")) == 3
    assert "diverged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda x: x.fill_(torch.nan), "hold values that are not finite"),
        (lambda x: x.resize_(len(x), 1, 4, 16), "shape (1, 4, 16), but (1, 8, 8) is expected"),
    ],
)
def test_spoilt_data_is_an_error_before_anything_is_written(spoil, says, monkeypatch, capsys):
    def spoilt(*args, **kwargs):
        splits = load(*args, **kwargs)
        tensors = replace(splits.train.tensors, x=splits.train.tensors.x.clone())
        spoil(tensors.x)
        return replace(splits, train=replace(splits.train, tensors=tensors))

    monkeypatch.setattr(sys.modules["snopt.lab.recipes.build"], "load", spoilt)
    assert main(["train", "digits"]) == 1
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) <= 24
    assert not Path("out").exists()


def test_missing_data_is_named_with_the_way_to_get_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SNOPT_DATA", str(tmp_path))
    assert main(words("train mnist")) == 1
    assert "fetch('mnist')" in capsys.readouterr().err


def test_a_damaged_data_file_is_one_sentence(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(b"not a gzip file")
    monkeypatch.setenv("SNOPT_DATA", str(tmp_path))
    assert main(words("train mnist")) == 1
    err = capsys.readouterr().err
    assert "mnist" in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 24


def test_compare_prints_a_table_and_report_makes_a_page_of_it(capsys):
    assert main(words("compare digits --optimizers snopt adam --seeds 2")) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["optimizer", "snopt", "adam"]
    assert out.splitlines()[2].startswith("final test accuracy  ")
    assert max(map(len, out.splitlines())) <= 80
    [comparison] = compare(read_runs(["out/digits"]))
    assert headline(comparison) in " ".join(out.split())
    assert len(list(Path("out/digits").iterdir())) == 4
    assert main(["report", "out/digits", "-o", "page.html"]) == 0
    assert "adam" in Path("page.html").read_text()
    assert capsys.readouterr().out.strip().endswith("page.html")
    assert main(["report", "out", "--format", "markdown"]) == 0
    assert "adam" in Path("report.md").read_text()


def test_an_interrupted_comparison_ends_with_130(monkeypatch, capsys):
    monkeypatch.setattr(
        sys.modules["snopt.lab.recipes.run"],
        "run",
        lambda *_, **__: Outcome("interrupted", 7, 1.0),
    )
    assert main(words("compare digits --seeds 1")) == 130
    assert "run the same command again" in capsys.readouterr().out


def test_sweep_finds_the_best_and_says_how_to_train_with_it(capsys):
    pytest.importorskip("optuna")
    assert main(words("sweep digits --optimizer sgd --trials 2 --set data.examples=20")) == 0
    out = capsys.readouterr().out
    assert "2 trials: 2 done, 0 failed, in out/sweep/digits-sgd" in out
    command = "snopt train digits --optimizer sgd --scale smoke --set data.examples=20 lr="
    assert command in out
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert Path("out/sweep/digits-sgd/study.db").exists()


def test_a_sweep_in_which_everything_fails_says_why_and_ends_with_1(monkeypatch, capsys):
    pytest.importorskip("optuna")

    def fail(*_, **__):
        raise RuntimeError("no luck")

    monkeypatch.setattr(sys.modules["snopt.lab.recipes.run"], "run", fail)
    assert main(words("sweep digits --trials 1")) == 1
    out = capsys.readouterr().out
    assert "1 trials: 0 done, 1 failed" in out
    assert "no luck" in out


def test_sweep_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(words("sweep digits")) == 1
    assert "pip install 'snopt[lab]'" in capsys.readouterr().err


def test_data_list_names_every_data_set(capsys, tmp_path):
    assert main(["data", "list", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "miniboone" in out
    assert "missing" in out
    assert len(out.splitlines()) == len(names()) + 1
    assert max(map(len, out.splitlines())) <= 80
    assert main(["data", "list", "gas", "digits", "--root", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "gas",
        "digits",
    ]
    assert main(["data", "list", "gass"]) == 2
    assert "did you mean 'gas'" in capsys.readouterr().err
    assert main(["data", "fetch", "circle", "--root", str(tmp_path)]) == 0
    assert "nothing to download" in capsys.readouterr().out


def test_tensorboard_events_are_written_on_request():
    pytest.importorskip("tensorboard")
    assert main(words("train digits -o run --tensorboard")) == 0
    assert list(Path("run/tensorboard").iterdir())
    Path("boardtask.py").write_text(OWN)
    start = "train boardtask:triple --iterations 2 --quiet -o own"
    resume = "train --resume own --iterations 3 --quiet --tensorboard"
    assert main(start.split()) == main(resume.split()) == 0
    assert list(Path("own/tensorboard").iterdir())


def test_the_record_holds_the_whole_configuration():
    main(words("train digits -o run"))
    content = json.loads(Path("run/config.json").read_text())
    assert content["experiment"]["solver"]["rtol"] == 0.01
    assert content["train"]["iterations"] == 3
