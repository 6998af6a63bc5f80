"""Code of the documentation runs, its commands parse, its links and formulas are well formed.

Every ``python`` block of the README and of all pages under ``docs`` runs. The blocks of a page run
in order, in one namespace and an empty folder. Two comments directly above a fence change that:

    <!-- not run: reason -->    skips a block;
    <!-- shown -->              above a text block: what the previous block prints, raises or warns
                                of; "..." stands for anything, line breaks for spaces.

STAND_INS provides names that a page takes for granted. Commands are parsed by the programs they
start, but not executed.
"""

import contextlib
import functools
import gc
import io
import itertools
import json
import re
import shlex
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import snopt.models
from benchmarks.command import parse as parse_benchmark
from snopt.lab.cli import main as cli
from tests.lab.data.files import small_registry, write_all
from tests.lab.report.fabricate import write_run
from tests.pages import (
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    commands,
    formulas,
    links,
    read,
    slug,
    without_code,
)

Names = dict[str, Any]

# ------------------------------------------------------------- what pages take for granted


def pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(8, 2), torch.randint(2, (8,))) for _ in range(2)]


def optimizer(stack: contextlib.ExitStack) -> Names:
    model = functools.partial(nn.Linear, 2, 2)
    return {"MyModel": model, "batches": pairs(), "criterion": nn.functional.cross_entropy}


def models(stack: contextlib.ExitStack) -> Names:
    """Small files of every data set; a table that pandas would have read."""
    pytest.importorskip("sklearn")
    stack.enter_context(small_registry())
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("SNOPT_DATA", str(write_all(Path("data"))))
    table = types.SimpleNamespace(to_numpy=lambda: np.zeros((2, 8)))
    pandas = types.SimpleNamespace(read_pickle=lambda path: table)
    patch.setitem(sys.modules, "pandas", pandas)  # type: ignore[arg-type]
    Path("gas").mkdir()
    return {}


def scaling(stack: contextlib.ExitStack) -> Names:
    """What torchrun says to the only process of a group."""
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in address.items():
        patch.setenv(name, value)
    stack.callback(torch.distributed.destroy_process_group)
    # The wrapped model goes first: the last to let go of a group waits for the group's threads,
    # which may wait for the interpreter that it holds.
    stack.callback(gc.collect)
    model, criterion = nn.Linear(2, 2), nn.functional.cross_entropy
    return {"model": model, "criterion": criterion, "my_share_of_batches": pairs()}


def training(stack: contextlib.ExitStack) -> Names:
    """Runs to report on."""
    pytest.importorskip("tensorboard")
    pytest.importorskip("matplotlib")
    for name in ("snopt", "adam"):
        write_run(Path("out"), name)
    return {}


def troubleshooting(stack: contextlib.ExitStack) -> Names:
    """A machine without a compiler."""

    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def fails(*args: Any) -> None:
            raise RuntimeError("no C++ compiler found")

        return fails

    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr("snopt.adjoint.compiled.torch.compile", compile)
    return {}


STAND_INS: dict[str, Callable[[contextlib.ExitStack], Names]] = {
    "docs/optimizer.md": optimizer,
    "docs/models.md": models,
    "docs/scaling.md": scaling,
    "docs/solving.md": troubleshooting,
    "docs/training.md": training,
    "docs/troubleshooting.md": troubleshooting,
}


def check_training(names: Names) -> None:
    assert names["outcome"].status == "finished"
    assert names["outcome"].last["test"]["accuracy"] > 0.9
    assert names["main"]().status in ("finished", "target")


def check_models(names: Names) -> None:
    assert names["accuracy"] > 0.2  # of ten classes, after one epoch
    assert names["logits"].shape == (8, 4)


#: What must hold when a page has run, besides that nothing was raised.
CHECKS: dict[str, Callable[[Names], None]] = {
    "docs/models.md": check_models,
    "docs/training.md": check_training,
}

# ---------------------------------------------------------------------------------- code


def carry_out(page: str, block: Block, names: Names, *, may_raise: bool) -> list[str]:
    """Run a block and return all that it shows: output, warnings, the last line of an error."""
    # Empty lines above, so that a traceback names the page's own lines.
    code = compile("\n" * block.line + block.code, str(ROOT / page), "exec")
    out, raised = io.StringIO(), ""
    with warnings.catch_warnings(record=True) as heard, contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        try:
            exec(code, names)
        except Exception as error:
            if not may_raise:
                raise
            raised = "".join(traceback.format_exception_only(error))
    told = [f"{warning.category.__name__}: {warning.message}" for warning in heard]
    return [out.getvalue(), raised, *told]


def same(claim: str, text: str) -> bool:
    """Whether a text is what the page shows.

    >>> same("at t = ...: the field is\\nstiff", "at t = 0.5: the field is stiff")
    True
    >>> same("stiff", "not stiff")
    False
    """
    parts = [re.escape(" ".join(part.split())) for part in claim.split("...")]
    return re.fullmatch(" ?.*? ?".join(parts), " ".join(text.split())) is not None


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in read(page)])
def test_code_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [block for block in blocks(read(page)) if not block.mark.startswith("not run")]
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        names = {"__name__": "page", **STAND_INS.get(page, lambda stack: {})(stack)}
        stack.callback(names.clear)
        for block, after in itertools.zip_longest(found, found[1:]):
            if block.language != "python":
                continue
            claim = after.code if after is not None and after.mark == "shown" else None
            shown = carry_out(page, block, names, may_raise=claim is not None)
            if claim is not None and not any(same(claim, text) for text in shown):
                pytest.fail(f"{page}:{block.line} shows {shown}, but the page says {claim!r}")
        CHECKS.get(page, lambda names: None)(names)


def test_the_table_of_models_tells_their_numbers_of_parameters():
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| ([\d,]+) \|$", read("docs/models.md"), re.M)
    assert len(rows) == 8
    for code, count in rows:
        model = eval(code, vars(snopt.models).copy())
        assert sum(p.numel() for p in model.parameters()) == int(count.replace(",", "")), code


def test_the_numbers_of_the_home_page_are_those_of_the_results():
    home, peers = read("docs/index.md"), read("docs/peers.md")
    ratio = r"^\| {} \| `snopt_{}` .*\*\*([\d.]+)\*\*"
    workloads = ("`image`", "`ode_rnn`", "`cnf_miniboone`, autograd", "`cnf_gas`, autograd")
    times = [re.findall(ratio.format(name, "checkpoint"), peers, re.M)[0] for name in workloads]
    eager = sorted(1 / float(value) for value in times)
    assert f"**{eager[0]:.1f} to {eager[-1]:.1f} ×**" in home
    compiled = re.findall(ratio.format("`ode_rnn`", "compiled"), peers, re.M)[0]
    assert f"**{1 / float(compiled):.0f} ×**" in home
    diffrax = re.findall(r"^\| `ode_rnn` \| compiled, .* ([\d.]+) \(\w+\) \|$", peers, re.M)[0]
    assert f"diffrax takes {diffrax} times" in home
    table = json.loads(read("docs/results/accu.json"))["tables"][0]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    values = {
        row["method"]: row["test"].split()[0] for row in rows if row["data set"] == "Miniboone"
    }
    found = {method: f"{float(value):.1f}" for method, value in values.items() if value != "-"}
    assert f"**{found['SNOpt (default)']} nats**" in home
    said = f"Adam reaches {found['Adam']}, SOAP {found['SOAP']} and Muon {found['Muon']}"
    assert said in home.replace("\n", " ")


def test_a_wrong_claim_is_noticed():
    block = Block("python", "raise ValueError('lr=-1 must not be negative')\n", 0, "")
    shown = carry_out("README.md", block, {}, may_raise=True)
    assert any(same("ValueError: lr=... must not be\nnegative", text) for text in shown)
    assert not any(same("ValueError: lr=-1 must be positive", text) for text in shown)


# ------------------------------------------------------------------------------ commands


def check_snopt(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a command line of ours up to the point where it would begin to work."""
    asked: list[tuple[str, Names, tuple[Any, ...]]] = []

    def noting(verb: str, function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def note(*args: Any, **flags: Any) -> int:
            asked.append((verb, flags, args))
            return 0

        return note

    verbs = {verb: noting(verb, function) for verb, function in cli.VERBS.items()}
    monkeypatch.setattr(cli, "VERBS", verbs)
    assert cli.main(["--debug", *words]) == 0, f"snopt {shlex.join(words)}"
    for verb, flags, args in asked:
        task = args[0] if args else None
        if verb in ("train", "compare", "sweep") and task is not None:
            chosen = flags.get("optimizers") or (flags["optimizer"],)
            for name in chosen:
                if ":" not in task:  # a function of the user's own
                    flags["common"].experiment(task, name)


def check_benchmark(words: list[str]) -> None:
    """The group has the command, and the command knows the flags."""
    pytest.importorskip("matplotlib")
    with contextlib.suppress(SystemExit):
        parse_benchmark(words[2], words[3:])
        return
    pytest.fail(f"{shlex.join(words)} is no command of benchmarks")


def words_of(command: str) -> list[str]:
    """The words up to a pipe or a redirection, without comments and environment variables.

    >>> words_of("A=1 snopt info > here  # what is installed")
    ['snopt', 'info']
    """
    words = shlex.split(command, comments=True)
    while words and re.match(r"^\w+=", words[0]):
        words.pop(0)
    ends = [i for i, word in enumerate(words) if word in (">", "|", "&&", ";")]
    return words[: ends[0]] if ends else words


@pytest.mark.parametrize("page", [page for page in PAGES if commands(read(page))])
def test_commands_of_the_page_make_sense(page, monkeypatch, capsys):
    pytest.importorskip("tyro")
    makefile = read("Makefile")
    for command in commands(read(page)):
        words = words_of(command)
        if "-m" in words and "snopt" in words[words.index("-m") + 1 :][:1]:
            words = words[words.index("-m") + 1 :]  # torchrun ... -m snopt, python -m snopt
        if words[:1] == ["snopt"]:
            check_snopt(words[1:], monkeypatch)
        elif words[:2] == ["python", "-m"] and words[2].startswith("benchmarks."):
            check_benchmark(words)
        elif words[:1] == ["make"]:
            for target in (word for word in words[1:] if "=" not in word):
                assert f"\n{target}:" in makefile, f"no target {target}"


# --------------------------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_page_lead_somewhere(page):
    for link in links(read(page)):
        if re.match(r"^(https?:|mailto:)", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: there is no {link}"
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), f"{page}: no heading for {link}"


def test_anchors_are_those_of_the_site():
    toc = pytest.importorskip("markdown.extensions.toc")
    for page in PAGES:
        for heading in re.findall(r"^## (.+)$", read(page), re.M):
            assert slug(heading) == toc.slugify(heading, "-"), heading


# --------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("page", [page for page in PAGES if formulas(read(page))])
def test_formulas_of_the_page_are_well_formed(page):
    text = read(page)
    assert len(re.findall(r"(?<!\\)\$", without_code(text))) % 2 == 0, f"{page}: an odd number of $"
    assert not re.search(r"^\$\$.", text, re.M), f"{page}: $$ must stand on a line of its own"
    for formula in formulas(text):
        assert formula.count("{") == formula.count("}"), f"{page}: braces of {formula!r}"
        begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", formula) for word in ("begin", "end"))
        assert sorted(begun) == sorted(ended), f"{page}: environments of {formula!r}"
        assert "\n\n" not in formula, f"{page}: an empty line ends the formula {formula!r}"
