"""Scripts written for torchdiffeq run with only the import changed, to the same result."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
IMPORT = "from snopt import odeint_adjoint as odeint"


def final_loss(path: Path, iterations: int) -> float:
    run = subprocess.run(
        [sys.executable, str(path), "--iterations", str(iterations)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return float(re.search(r"final loss (\S+)", run.stdout).group(1))


@pytest.mark.parametrize(("name", "iterations"), [("spiral.py", 12), ("cnf_circles.py", 3)])
def test_only_the_import_differs(name, iterations, tmp_path):
    source = (EXAMPLES / name).read_text()
    assert source.count(IMPORT) == 1
    theirs = tmp_path / name
    theirs.write_text(source.replace(IMPORT, "from torchdiffeq import odeint_adjoint as odeint"))
    ours = final_loss(EXAMPLES / name, iterations)
    assert ours == pytest.approx(final_loss(theirs, iterations), rel=2e-3)
