"""The benchmark to steer by: methods and rates on ten tasks, with one budget for everyone.

    python -m benchmarks.optimizer --split tune                     # to decide by
    python -m benchmarks.optimizer --split report                   # to report
    python -m benchmarks.optimizer --split tune --tasks digits --methods snopt adam --updates 100
    python -m benchmarks.optimizer --split tune --table             # only the table

Seconds are CPU seconds of one thread, without evaluation. Every run has a folder below ``--out``,
which ``snopt report`` can read. A run is made again if its settings or the code that it uses have
changed: after a change of SNOpt, only SNOpt runs again. A method may have settings:
``snopt:momentum=0.5,damping=1e-3``.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch

from benchmarks.optimizer.standings import Entry, standings
from benchmarks.optimizer.tasks import RATES, SEEDS, SPLITS, experiment, installed
from snopt.lab.paper.jobs import Training


def entries(chosen: argparse.Namespace) -> list[Entry]:
    """List the runs of a command line: seeds first, so that a part of it is a race as well."""
    known = {name for split in chosen.split for name in SPLITS[split]}
    for name in chosen.tasks or ():
        if name not in known:
            raise SystemExit(f"{name} is no task of {chosen.split}: {sorted(known)}")
    for method in chosen.methods:
        if not chosen.rates and method.partition(":")[0] not in RATES:
            raise SystemExit(f"{method} has no rates of its own here: give it --rates")
    planned = []
    for split in chosen.split:
        tasks = {n: t for n, t in SPLITS[split].items() if n in (chosen.tasks or [n])}
        seeds = SEEDS[split][: chosen.seeds]
        for seed, (name, task), method in product(seeds, tasks.items(), chosen.methods):
            unit = "updates" if chosen.updates else "seconds"
            budget = unit, chosen.updates or chosen.seconds or task.seconds
            for lr in chosen.rates or RATES[method.partition(":")[0]]:
                config = experiment(task, method, lr, seed, budget, split, chosen.scale)
                run = f"{method}-lr{lr:g}-{budget[1]:g}-{unit}-seed{seed}"
                folder = chosen.out / chosen.scale / split / name / run
                planned.append(Entry(split, name, method, Training(config, folder)))
    return planned


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    tasks = [name for split in SPLITS.values() for name in split]
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=list(SPLITS))
    parser.add_argument("--tasks", nargs="+", choices=tasks, help="default: all of the split")
    parser.add_argument("--methods", nargs="+", default=list(RATES), help=f"default: {[*RATES]}")
    parser.add_argument("--rates", nargs="+", type=float, help="for all methods; default: a grid")
    parser.add_argument("--seeds", type=int, help="how many of the split's; default: all")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--seconds", type=float, help="CPU seconds of a run; default: the task's")
    budget.add_argument("--updates", type=int, help="updates of a run, in place of seconds")
    parser.add_argument("--scale", choices=("cpu", "smoke"), default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/race"), help="folder of the runs")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is there")


def main(chosen: argparse.Namespace) -> None:
    """Make the runs that are missing, and show the table."""
    torch.set_num_threads(1)
    chosen.methods = installed(chosen.methods)
    planned = entries(chosen)
    for number, entry in enumerate(planned, start=1):
        if not (chosen.table or entry.job.done()):
            entry.job.do(lambda _: ())
            print(f"{number}/{len(planned)} {entry.job.label}: {entry.run.state}", flush=True)
    print(standings([entry for entry in planned if entry.job.done()]))
