"""Kill processes at random moments: ``python killing.py FOLDER KILLS SEED [WHAT]``.

WHAT is ``train`` (the default), ``compare``, ``sweep`` or ``paper``. A separate program that starts
no threads, so that it can fork a process at once. It kills every run once or twice and resumes it,
until KILLS processes were killed before their end. It compares every run bit for bit (losses,
metrics, NFE, checkpoints) with one that was not killed, and prints counts as JSON. 200 kills:

    for what in train compare sweep paper; do
        python tests/lab/train/killing.py out/kills-$what 50 0 $what
    done
"""

import json
import os
import random
import signal
import sys
import time
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from snopt.lab.cli.main import main as main_command
from snopt.lab.recipes import (
    SweepConfig,
    compare,
    open_study,
    recipe,
    schedule,
    with_settings,
    work,
)
from snopt.lab.recipes.sweep import tally
from snopt.lab.train import train
from tests.lab.train.problems import (
    CONFIG,
    Moons,
    assert_same_records,
    assert_same_state,
    make_parts,
)

LONG = replace(CONFIG, iterations=20, checkpoint_every=3)
SMALL = ["train.iterations=8", "train.checkpoint_every=3", "data.examples=64"]


def run_training(folder: Path) -> None:
    train(Moons(), make_parts("snopt"), LONG, folder, resume=True)


def run_comparison(folder: Path) -> None:
    configs = [with_settings(recipe("digits", name, "smoke"), SMALL) for name in ("snopt", "adam")]
    compare(schedule(configs, 2, folder))


def sweep_config(folder: Path) -> SweepConfig:
    base = with_settings(recipe("digits", "adam", "smoke"), SMALL)
    return SweepConfig(base, folder, trials=3)


def run_sweep(folder: Path) -> None:
    work(sweep_config(folder), open_study(sweep_config(folder)))


def run_paper(folder: Path) -> None:
    words = f"paper accu --tasks circle --scale smoke --quiet --out {folder}"
    with redirect_stdout(StringIO()):
        assert main_command(words.split()) == 0


RUNS = {
    "train": run_training, "compare": run_comparison, "sweep": run_sweep, "paper": run_paper,
}  # fmt: skip


def start(what: str, folder: Path) -> int:
    """Fork a process that starts or resumes what is in the folder; return its id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            RUNS[what](folder)
            status = 0
        finally:
            os._exit(status)
    return child


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("metrics.jsonl"))


def damaged_lines(folder: Path) -> int:
    """Count the lines that cannot be read, except the last of a file."""
    bad = 0
    for path in folder.rglob("metrics.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                json.loads(line)
            except ValueError:
                bad += 1
    return bad


def check_same(whole: Path, folder: Path) -> None:
    """Check that every run is there and ended with the same bits."""
    pairs = list(zip(run_folders(whole), run_folders(folder), strict=True))
    assert pairs
    for one, other in pairs:
        assert one.relative_to(whole) == other.relative_to(folder)
        assert_same_state(one, other)
        assert_same_records(one, other)


def main() -> None:
    torch.set_num_threads(1)
    root, kills, moments = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    what = sys.argv[4] if len(sys.argv) > 4 else "train"
    whole = root / "whole"
    RUNS[what](whole)  # here, so that the children need not import anything
    begun = time.monotonic()
    assert wait(start(what, root / "timed")) == 0
    duration, killed, trials, damaged = time.monotonic() - begun, 0, 0, 0
    while killed < kills:
        folder, trials = root / str(trials), trials + 1
        for _ in range(moments.choice((1, 2))):  # A sweep retries a trial twice.
            child = start(what, folder)
            time.sleep(moments.uniform(0.0, duration))
            os.kill(child, signal.SIGKILL)
            killed += wait(child) != 0
            damaged += damaged_lines(folder)
        assert wait(start(what, folder)) == 0, "the resumed run failed"
        check_same(whole, folder)
    found = {"trials": trials, "killed": killed, "damaged lines": damaged}
    if what == "sweep":
        found["sweep"] = tally(open_study(sweep_config(folder)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
