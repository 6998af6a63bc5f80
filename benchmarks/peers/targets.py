"""Seconds and iterations until a stated test accuracy, all optimizers side by side.

Optimizers take turns of a few iterations, so that drifts of the machine affect all alike. Seconds
are those of learning, without evaluation and compilation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor

import snopt
from benchmarks.files import RESULTS, read
from benchmarks.optimizer.small import SMALL, Learner, Small
from benchmarks.optimizer.tasks import registered
from benchmarks.peers.engines import first_line
from benchmarks.peers.optimizers import singd
from snopt.lab.recipes.run import rotated

SEEDS = (0, 1, 2)
TARGETS = (90.0, 95.0)
EVERY = 5
"""Iterations between two evaluations."""
LOOK_AT = 1000
"""Number of test images."""
LIMIT = {"digits": 150, "mnist": 100}

TUNED = ("snopt", "soap", "muon", "adam")
"""Those whose rates stand in ``results/optimizer_learning_*.json``, the best of four each."""
SINGD_RATES = {"digits": 1e-1, "mnist": 3e-2}
"""Searched on digits only."""

Point = tuple[int, float, float]
"""Iteration, seconds of learning so far, test accuracy."""


def rates_of(task: str) -> dict[str, float]:
    """Return the rates of all optimizers of a task."""
    chosen = read(RESULTS / f"optimizer_learning_{task}.json")["methods"]
    rates = {name: float(chosen[name]["best"]) for name in TUNED} | {"singd": SINGD_RATES[task]}
    return rates | {"optax": rates["adam"]} if task == "digits" else rates


def learner(name: str, task: str, lr: float, seed: int, batch: tuple[Tensor, Tensor]) -> Any:
    """Create a model, the same for all with this seed, and its optimizer."""
    torch.manual_seed(seed)
    model = SMALL[task][1]()
    if name != "optax":
        return Learner(model, singd(model, lr) if name == "singd" else registered(name, model, lr))
    from benchmarks.peers.optax_trials import DigitsLearner

    made = DigitsLearner(model, lr)
    made.compile(*batch)
    return made


def points(student: Any, task: Small, seed: int, limit: int) -> Iterator[Point]:
    """Train, and evaluate on test images every few iterations."""
    x, y = (part[:LOOK_AT] for part in task.test)
    batches, seconds = task.batches(seed), 0.0
    for iteration in range(1, limit + 1):
        inputs, labels = next(batches)
        start = time.perf_counter()
        student.learn(inputs, labels)
        seconds += time.perf_counter() - start
        if iteration % EVERY == 0:
            yield iteration, seconds, student.accuracy(x, y)


def side_by_side(runs: dict[str, Iterator[Point]], goal: float) -> dict[str, list[Point]]:
    """Train in turn until each has reached the goal or its end."""
    curves: dict[str, list[Point]] = {name: [] for name in runs}
    going, turn = list(runs), 0
    while going:
        for name in rotated(going, turn):
            try:
                point = next(runs[name], None)
            except snopt.SolveError:
                point = None  # its flow became too stiff to solve
            if point is not None:
                curves[name].append(point)
            if point is None or point[2] >= goal:
                going.remove(name)
        turn += 1
    return curves


def reached(curve: list[Point], target: float) -> dict[str, float] | None:
    """Return the first point of a curve at or above a target."""
    for iteration, seconds, percent in curve:
        if percent >= target:
            return {"iterations": iteration, "seconds": seconds}
    return None


def summarised(found: list[dict[str, float] | None]) -> dict[str, Any]:
    """Return medians over seeds, if every seed got there, and the values of each seed."""
    there = [each for each in found if each is not None]
    return {
        "seeds": found,
        "reached": len(there),
        **{
            key: median(each[key] for each in there) if len(there) == len(found) else None
            for key in ("iterations", "seconds")
        },
    }


def measure(task_name: str, budget: float) -> dict[str, Any]:
    """Train all optimizers on a task with every seed; the task decides the length."""
    task, rates = SMALL[task_name][0](), rates_of(task_name)
    curves: dict[str, list[list[Point]]] = {}
    unable: dict[str, str] = {}
    for seed in SEEDS:
        students: dict[str, Callable[..., Any]] = {}
        for name in (name for name in rates if name not in unable):
            try:
                students[name] = learner(
                    name, task_name, rates[name], seed, next(task.batches(seed))
                )
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way
                unable[name] = first_line(error)
                print(f"{task_name:8} {name:8} {unable[name]}", flush=True)
        runs = {
            name: points(student, task, seed, LIMIT[task_name])
            for name, student in students.items()
        }
        for name, curve in side_by_side(runs, max(TARGETS)).items():
            curves.setdefault(name, []).append(curve)
            print(f"{task_name:8} {name:8} seed {seed} {curve[-1:]}", flush=True)
    return {
        "seeds": list(SEEDS),
        "limit": LIMIT[task_name],
        "look_every": EVERY,
        "contenders": {
            name: {
                "rate": rates[name],
                "targets": {
                    f"{t:g}": summarised([reached(curve, t) for curve in of]) for t in TARGETS
                },
                "curves": of,
            }
            for name, of in curves.items()
        },
        "cannot_run": unable,
    }
