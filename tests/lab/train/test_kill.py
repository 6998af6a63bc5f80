"""Kill -9 at random moments: records stay readable, resumed runs equal uninterrupted ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killing.py")


def slow(what, kills):
    return pytest.param(what, kills, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("what", "kills"),
    [
        ("train", 6),
        ("compare", 1),
        # 200 kills in all.
        slow("train", 80),
        slow("compare", 40),
        slow("sweep", 40),
        slow("paper", 40),
    ],
)
def test_what_was_killed_resumes_to_the_same_end(tmp_path, what, kills):
    command = [sys.executable, str(PROGRAM), str(tmp_path), str(kills), str(kills), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] >= kills
    assert found["damaged lines"] == 0
    if what == "sweep":
        assert found["sweep"] == {"COMPLETE": 3}
