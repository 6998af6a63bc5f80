import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from snopt.lab.train import load_checkpoint, read_records
from snopt.lab.train.parallel import stop_requests

PROGRAM = Path(__file__).with_name("problems.py")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_is_a_request_and_the_second_has_its_usual_meaning(which):
    usual = signal.getsignal(which)
    with stop_requests() as requested:
        assert requested == []
        signal.raise_signal(which)
        assert requested == [which.name]
        assert signal.getsignal(which) is usual
    assert signal.getsignal(which) is usual


def test_nothing_is_left_behind_without_a_signal():
    usual = signal.getsignal(signal.SIGINT)
    with stop_requests():
        assert signal.getsignal(signal.SIGINT) is not usual
    assert signal.getsignal(signal.SIGINT) is usual


def test_ignored_signal_stays_ignored():
    """As SIGHUP is under nohup."""
    usual = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as requested:
            signal.raise_signal(signal.SIGHUP)
        assert requested == []
    finally:
        signal.signal(signal.SIGHUP, usual)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_interrupted_process_saves_and_says_how_to_resume(tmp_path, which):
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), "adam", "1000000"],
        env={
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            "PATH": "",
        },
    )
    deadline = time.monotonic() + 300
    while len(read_records(folder)) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(which)
    assert process.wait() == 130
    end = read_records(folder)[-1]
    assert end["status"] == "interrupted"
    assert f"--resume {folder}" in end["message"]
    assert load_checkpoint(folder)["iteration"] == end["iteration"]
