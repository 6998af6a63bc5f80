"""Examples that are scripts for torchdiffeq: the lines marked as changed are all that changed."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MARKED = re.compile(r"^( *)# was: (.*)\n.*\n", re.MULTILINE)


def losses(source: str, **sizes: int) -> list[float]:
    names = {"__name__": "example"}
    exec(compile(source, "example", "exec"), names)
    return names["main"](**sizes)


@pytest.mark.parametrize(("name", "changed"), [("spiral.py", 3), ("cnf_circles.py", 1)])
def test_the_script_put_back_knows_nothing_of_snopt(name, changed):
    source = (EXAMPLES / name).read_text("utf-8")
    assert len(MARKED.findall(source)) == changed
    code = MARKED.sub(r"\1\2\n", source).split('"""', 2)[2]
    assert "torchdiffeq" in code
    assert not re.search("snopt|SNOpt|NeuralODE", code.replace("snopt.models", ""))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("spiral.py", {"iterations": 12}), ("cnf_circles.py", {"iterations": 3, "batch": 128})],
)
def test_with_the_import_alone_changed_the_losses_are_torchdiffeqs(name, sizes):
    source = (EXAMPLES / name).read_text("utf-8")
    theirs = MARKED.sub(r"\1\2\n", source)
    ours = theirs.replace("from torchdiffeq import", "from snopt import")
    assert ours != theirs
    expected = losses(theirs, **sizes)
    assert expected[-1] < expected[0]
    assert losses(ours, **sizes) == pytest.approx(expected, rel=2e-3)


def test_the_changed_lines_train_the_same_model_with_snopt():
    source = (EXAMPLES / "spiral.py").read_text("utf-8")
    adam = losses(MARKED.sub(r"\1\2\n", source), iterations=45)
    snopt = losses(source, iterations=45)
    assert snopt[0] == pytest.approx(adam[0], rel=2e-3)  # the same weights and pieces
    for curve in (adam, snopt):
        assert sum(curve[-15:]) < 0.6 * sum(curve[:15])
