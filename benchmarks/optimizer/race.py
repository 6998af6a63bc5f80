"""The benchmark to steer by: methods and rates on ten tasks, with one budget for everyone.

    python -m benchmarks.optimizer --split tune                     # to decide by
    python -m benchmarks.optimizer --split report                   # to report
    python -m benchmarks.optimizer --split tune --tasks digits --methods snopt adam --updates 100
    python -m benchmarks.optimizer --split tune --table             # only the table

Seconds are CPU seconds of one thread, without evaluation. A run that is in the file is not made
again: it may be stopped at any time and started anew. What belongs to a run is its whole
configuration, its budget and, for SNOpt, the source of the optimizer: after a change of that
source only SNOpt runs again. A method may have settings: ``snopt:momentum=0.5,damping=1e-3``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn

import snopt
from benchmarks.files import RESULTS, keep, read
from benchmarks.optimizer.standings import standings
from benchmarks.optimizer.tasks import RATES, SEEDS, SPLITS, Task, experiment, installed
from snopt.lab.config import Experiment
from snopt.lab.paper.version import code_version
from snopt.lab.recipes.build import build
from snopt.lab.train import seed_all
from snopt.lab.train.seeding import Order
from snopt.lab.train.step import Update, evaluate, weights_for

POINTS = 50
"""Parts of the budget; the curve has the mean loss of each."""
GIVE_UP = 5
"""Updates in a row that could not be made before a run is called diverged."""
OVERTIME = 1.2
"""A solve that is still at work after so much of the budget of seconds is broken off."""


@dataclass(frozen=True)
class Budget:
    """What a run may use: CPU seconds, or updates."""

    unit: str
    amount: float

    def used(self, seconds: float, updates: int) -> float:
        """The share that is used up."""
        return (seconds if self.unit == "seconds" else updates) / self.amount


@dataclass(frozen=True)
class Entry:
    """One run of the race; everything that its outcome depends on."""

    split: str
    task: str
    method: str
    budget: Budget
    experiment: Experiment
    source: str

    @property
    def key(self) -> str:
        """A short name for exactly this run."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class BrokenOff(Exception):
    """The budget of seconds was overdrawn within a solve."""


class Meter:
    """Counts evaluations of a model's fields and CPU seconds, and stops solves that do not end."""

    def __init__(self, model: nn.Module, limit: float) -> None:
        self.evaluations, self.seconds, self.limit = 0, 0.0, limit
        self.start: float | None = None
        for block in model.modules():
            if isinstance(block, snopt.NeuralODE):
                block.field.register_forward_pre_hook(self._count)

    def _count(self, *_: object) -> None:
        if self.start is None:  # evaluation of what was learnt
            return
        self.evaluations += 1
        if self.seconds + time.process_time() - self.start > self.limit:
            raise BrokenOff(f"more than {self.limit:g} CPU seconds")

    def __enter__(self) -> None:
        self.start = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self.start
        self.start = None


def run(entry: Entry) -> dict[str, Any]:
    """Train until the budget is used up; return the curve and how the result is judged."""
    config, budget = entry.experiment, entry.budget
    task, parts = build(config)
    seed_all(config.train.seed, "training")
    limit = OVERTIME * budget.amount if budget.unit == "seconds" else math.inf
    meter = Meter(parts.model, limit)
    update = Update(lambda batch: task.loss(parts.model, batch), parts)
    order = Order(len(task.train), config.train.batch_size, config.train.seed)
    curve: list[dict[str, float]] = []
    losses: list[float] = []
    updates, failed, status = 0, 0, "finished"
    while budget.used(meter.seconds, updates) < 1 and failed < GIVE_UP:
        batch = task.train.batch(order.indices(updates))
        try:
            with meter:
                loss, reason = update(batch)
        except BrokenOff as error:
            status = f"diverged: {error}"
            break
        updates += 1
        failed = 0 if reason is None else failed + 1
        losses.append(loss)
        if budget.used(meter.seconds, updates) >= (len(curve) + 1) / POINTS or failed == GIVE_UP:
            curve.append(
                {
                    "updates": updates,
                    "seconds": round(meter.seconds, 4),
                    "evaluations": meter.evaluations,
                    "loss": fmean(losses),
                }
            )
            losses = []
    if failed == GIVE_UP:
        status = f"diverged: {reason}"
    weights_for("eval", parts)
    judged = {"valid": task.valid} | ({"test": task.test} if entry.split == "report" else {})
    return {
        "status": status,
        "updates": updates,
        "seconds": round(meter.seconds, 4),
        "evaluations": meter.evaluations,
        "metric": task.metric,
        "curve": curve,
        **{
            name: evaluate(task, parts.model, examples, batch_size=500, seed=config.train.seed)
            for name, examples in judged.items()
            if status == "finished"
        },
    }


def source_of(method: str) -> str:
    """A fingerprint of the source that a method of ours is made of; none for the others."""
    return code_version(("optim", "kronecker")) if method.startswith("snopt") else ""


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
            budget, source = budget_of(task, chosen), source_of(method)
            for lr in chosen.rates or RATES[method.partition(":")[0]]:
                config = experiment(task, method, lr, seed, chosen.scale)
                planned.append(Entry(split, name, method, budget, config, source))
    return planned


def budget_of(task: Task, chosen: argparse.Namespace) -> Budget:
    """The budget of a task: what the command line says, or the task's own seconds."""
    if chosen.updates:
        return Budget("updates", chosen.updates)
    return Budget("seconds", chosen.seconds or task.seconds)


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
    parser.add_argument("--out", type=Path, default=RESULTS / "optimizer_race.json")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is there")


def main(chosen: argparse.Namespace) -> None:
    """Make the runs that are missing, and show the table."""
    torch.set_num_threads(1)
    chosen.methods = installed(chosen.methods)
    planned = entries(chosen)
    for number, entry in enumerate(planned, start=1):
        if chosen.table or entry.key in read(chosen.out):
            continue
        record = {"entry": asdict(entry), **run(entry)}
        keep(chosen.out, record, entry.key)
        lr, seed = entry.experiment.optimizer.lr, entry.experiment.train.seed
        loss = record["curve"][-1]["loss"] if record["curve"] else math.nan
        print(
            f"{number}/{len(planned)} {entry.task} {entry.method} lr {lr:g} seed {seed}: "
            f"loss {loss:.4g}, {record['updates']} updates, {record['seconds']:.1f} s, "
            f"{record['status']}",
            flush=True,
        )
    records = read(chosen.out)
    print(standings([records[entry.key] for entry in planned if entry.key in records]))
