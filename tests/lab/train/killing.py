"""Kill trainings at random moments: ``python killing.py FOLDER KILLS SEED``.

A program of its own, which starts no threads, so that it can fork a training in no time.
Trains until so many trainings were killed before their end, and prints what it found as JSON.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from snopt.lab.train import train
from tests.lab.train.problems import (
    CONFIG,
    Moons,
    assert_same_records,
    assert_same_state,
    make_parts,
)

LONG = replace(CONFIG, iterations=20, checkpoint_every=3)


def start(folder: Path) -> int:
    """Fork a training that goes on with what is in the folder; its process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = train(Moons(), make_parts("snopt"), LONG, folder, resume=True).exit_code
        finally:
            os._exit(status)
    return child


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def damaged_lines(folder: Path) -> int:
    """Lines that cannot be read, the last one apart."""
    path, bad = folder / "metrics.jsonl", 0
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
        try:
            json.loads(line)
        except ValueError:
            bad += 1
    return bad


def main() -> None:
    torch.set_num_threads(1)
    root, kills, moments = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    whole = root / "whole"
    train(Moons(), make_parts("snopt"), LONG, whole)
    duration, killed, trials, damaged = float("inf"), 0, 0, 0
    while killed < kills:
        folder, trials = root / str(trials), trials + 1
        begun, child = time.monotonic(), start(folder)
        if duration < float("inf"):
            time.sleep(moments.uniform(0.0, duration))
            os.kill(child, signal.SIGKILL)
        ended_by_itself = wait(child) == 0
        if ended_by_itself:
            duration = min(duration, time.monotonic() - begun)
        else:
            killed += 1
        damaged += damaged_lines(folder)
        assert wait(start(folder)) == 0, "the resumed run failed"
        assert_same_state(whole, folder)
        assert_same_records(whole, folder)
    print(json.dumps({"trials": trials, "killed": killed, "damaged lines": damaged}))


if __name__ == "__main__":
    main()
