"""Kill -9 at random moments: every record readable, every resumed run equal to the whole one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killing.py")


def kill_at_random(folder, kills, seed, what="train"):
    command = [sys.executable, str(PROGRAM), str(folder), str(kills), str(seed), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_runs_are_readable_and_resume_to_the_same_end(tmp_path, kills):
    found = kill_at_random(tmp_path, kills, seed=kills)
    assert found["killed"] == kills
    assert found["damaged lines"] == 0


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_comparisons_go_on_to_the_same_end(tmp_path, kills):
    found = kill_at_random(tmp_path, kills, 1, "compare")
    assert found["killed"] == kills
    assert found["damaged lines"] == 0


@pytest.mark.slow
def test_a_killed_sweep_goes_on_to_the_same_end(tmp_path):
    pytest.importorskip("optuna")
    found = kill_at_random(tmp_path, 5, 1, "sweep")
    assert (found["killed"], found["damaged lines"]) == (5, 0)
    assert found["sweep"] == {"COMPLETE": 3}
