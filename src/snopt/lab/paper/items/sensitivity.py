"""The grid of settings, what it chose, and how much results depend on the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from snopt.lab.config import OptimizerName
from snopt.lab.paper.arms import SMOKE_TASKS, methods_of, tasks_of
from snopt.lab.paper.curves import best_rival, clean, grid, lines
from snopt.lab.paper.item import Cell, Item, Result, Space, Table
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.names import METHODS, TASKS, TUNED, color_of
from snopt.lab.paper.scales import CUTS
from snopt.lab.paper.tuning import final, points, tuning_jobs

CLOUDS = ("mnist", "spoken_arabic_digits", "character_trajectories")
"""Data sets of the sensitivity analysis."""


def clouds_of(space: Space) -> list[str]:
    """Return the selected data sets of the sensitivity analysis."""
    return space.among(CLOUDS, smoke=SMOKE_TASKS[:2])


def searches(
    space: Space, tasks: Sequence[str]
) -> Iterator[tuple[str, OptimizerName, list[Training]]]:
    """Yield data set, optimizer and runs of every search, from cheap data sets to dear ones."""
    names = methods_of(space)
    tuned = ["snopt" if n == TUNED else n for n in names if n != "snopt" or TUNED not in names]
    for task in sorted(tasks, key=list(CUTS).index):
        for optimizer in tuned:
            yield task, optimizer, tuning_jobs(space, task, optimizer)


def ended(space: Space, tasks: Sequence[str]) -> Iterator[tuple[str, str, list[Training]]]:
    """Yield data set, method and runs of the searches that are done."""
    for task, optimizer, jobs in searches(space, tasks):
        if all(job.done() for job in jobs):
            yield task, METHODS[TUNED if optimizer == "snopt" else optimizer], jobs


def percent(job: Training) -> float:
    """Return the validation metric at the end, accuracies in percent; NaN if there is none."""
    return final(job) * (100 if job.config.metric == "accuracy" else 1)


def hyper(space: Space) -> Result:
    """Tabulate what each setting led to."""
    rows: list[list[Cell]] = []
    for task, method, jobs in ended(space, tasks_of(space)):
        for job in jobs:
            settings, train = job.config.optimizer, job.config.train
            schedule = "constant" if settings.cosine is None else "cosine"
            length = str(train.iterations or f"{train.epochs} epochs")
            cells = f"{settings.lr:g}", schedule, f"{settings.weight_decay:g}", percent(job), length
            rows.append([TASKS[task], method, *cells])
    columns = ["data set", "method", "rate", "schedule", "weight decay", "validation", "iterations"]
    notes = [
        "One seed, which no other table reports; the validation metric at the end decides.",
        "A dash: the run diverged, or its flow became too stiff to be solved.",
    ]
    return Result([Table("All settings tried.", columns, rows)], notes)


def cloud(space: Space) -> Result:
    """Collect a point per run: learning rate and validation accuracy at the end."""
    curves: dict[str, Any] = {}
    rows: list[list[Cell]] = []
    for task, method, jobs in ended(space, clouds_of(space)):
        first = jobs[: len(points(task, jobs[0].config.optimizer.name, space.scale))]
        values = {job.config.optimizer.lr: percent(job) for job in first}
        known = [value for value in values.values() if not math.isnan(value)]
        curves.setdefault(TASKS[task], {})[method] = [
            {"lr": lr, "accuracy": None if math.isnan(value) else value}
            for lr, value in values.items()
        ]
        ends = [max(known, default=None), min(known, default=None)]
        rows.append([TASKS[task], method, len(first), f"{len(first) - len(known)}", *ends])
    columns = ["data set", "method", "rates", "failed", "best accuracy, %", "worst accuracy, %"]
    caption = "Validation accuracy at the end, over all learning rates tried."
    return Result([Table(caption, columns, rows)], [], curves)


def draw_cloud(figure: Any, result: Result) -> None:
    """Draw one panel per data set: a line per method over learning rates, a cross if it failed."""
    axes = grid(figure, len(result.curves), height=2.9)[0]
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        axis.set(xscale="log", ylim=(0, 100))
        drawn: dict[str, Any] = {}
        for method, found in methods.items():
            good = [(p["lr"], p["accuracy"]) for p in found if p["accuracy"] is not None]
            drawn[method] = {"lr": [lr for lr, _ in good], "mean": [y for _, y in good]}
            failed = [p["lr"] for p in found if p["accuracy"] is None]
            axis.plot(failed, [2.0] * len(failed), "x", ms=5, color=color_of(method))
        drawn = {method: curve for method, curve in drawn.items() if curve["mean"]}
        clean(axis, "learning rate", "", f"{task}, accuracy, %")
        strong = (METHODS[TUNED], METHODS["snopt"], best_rival(drawn, "max"))
        lines(axis, drawn, "lr", strong=strong, marker="o", markersize=3)


HYPER = Item(
    "hyper",
    ("table:hyper",),
    "The grid of learning rates",
    lambda space: [job for *_, jobs in searches(space, tasks_of(space)) for job in jobs],
    hyper,
    shown=False,
    partial=True,
)
SENSITIVITY = Item(
    "point-cloud",
    ("fig:point-cloud",),
    "Sensitivity to the learning rate",
    lambda space: [job for *_, jobs in searches(space, clouds_of(space)) for job in jobs],
    cloud,
    draw_cloud,
    caption="Validation accuracy of the short tuning runs over the learning rate: a line that is "
    "high over many rates needs little tuning; a cross is a rate that failed. SNOpt and the best "
    "rival are emphasised.",
    partial=True,
)
