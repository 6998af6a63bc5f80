"""The grid of settings, what it chose, and how much results depend on the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from snopt.lab.config import OptimizerName
from snopt.lab.paper.arms import TasksOf, searched, tasks_of
from snopt.lab.paper.curves import clean, end_labels, panels
from snopt.lab.paper.item import Cell, Item, Result, Space, Table
from snopt.lab.paper.jobs import Job, Training
from snopt.lab.paper.names import METHODS, TASKS, TUNED, color_of, line_of
from snopt.lab.paper.scales import CUTS
from snopt.lab.paper.tuning import final, points, tuning_jobs

CLOUDS = ("mnist", "spoken_arabic_digits", "character_trajectories")
"""Data sets of the sensitivity analysis."""


def searches(space: Space, tasks: list[str]) -> Iterator[tuple[str, OptimizerName, list[Training]]]:
    """Yield data set, method and runs of every search, from cheap data sets to dear ones."""
    for task in sorted(tasks, key=list(CUTS).index):
        for optimizer in searched(space):
            yield task, optimizer, tuning_jobs(space, task, optimizer)


def ended(space: Space, tasks: list[str]) -> Iterator[tuple[str, OptimizerName, list[Training]]]:
    """Yield the searches that are done."""
    for task, optimizer, jobs in searches(space, tasks):
        if all(job.done() for job in jobs):
            yield task, optimizer, jobs


def _title(optimizer: OptimizerName) -> str:
    return METHODS[TUNED if optimizer == "snopt" else optimizer]


def jobs_on(tasks: TasksOf) -> Callable[[Space], list[Job]]:
    """Return a function that lists the runs of the searches on some data sets."""
    return lambda space: [job for *_, jobs in searches(space, tasks(space)) for job in jobs]


def hyper(space: Space) -> Result:
    """Tabulate what each setting led to."""
    rows: list[list[Cell]] = [
        [
            TASKS[task],
            _title(optimizer),
            f"{job.config.optimizer.lr:g}",
            "constant" if job.config.optimizer.cosine is None else "cosine",
            f"{job.config.optimizer.weight_decay:g}",
            final(job) * (100 if job.config.metric == "accuracy" else 1),
            str(job.config.train.iterations or f"{job.config.train.epochs} epochs"),
        ]
        for task, optimizer, jobs in ended(space, tasks_of(space))
        for job in jobs
    ]
    columns = ["data set", "method", "rate", "schedule", "weight decay", "validation", "iterations"]
    notes = [
        "One seed, which no other table reports; the validation metric at the end decides.",
        "A dash: the run diverged, or its flow became too stiff to be solved.",
    ]
    return Result([Table("All settings tried.", columns, rows)], notes)


def _clouds(space: Space) -> list[str]:
    return [task for task in tasks_of(space) if task in CLOUDS]


def cloud(space: Space) -> Result:
    """Collect a point per run: learning rate and validation accuracy at the end."""
    curves: dict[str, Any] = {}
    rows: list[list[Cell]] = []
    for task, optimizer, jobs in ended(space, _clouds(space)):
        found = [_point(job) for job in jobs[: len(points(task, optimizer, space.scale))]]
        curves.setdefault(TASKS[task], {})[_title(optimizer)] = found
        known = [point["accuracy"] for point in found if point["accuracy"] is not None]
        ends: list[Cell] = [max(known, default=None), min(known, default=None)]
        failed = f"{len(found) - len(known)}"
        rows.append([TASKS[task], _title(optimizer), len(found), failed, *ends])
    columns = ["data set", "method", "rates", "failed", "best accuracy, %", "worst accuracy, %"]
    caption = "Validation accuracy at the end, over all learning rates tried."
    return Result([Table(caption, columns, rows)], [], curves)


def _point(job: Training) -> dict[str, Any]:
    accuracy = 100 * final(job)
    return {
        "lr": job.config.optimizer.lr,
        "accuracy": None if math.isnan(accuracy) else accuracy,
    }


def draw_cloud(figure: Any, result: Result) -> None:
    """Draw one panel per data set: a line per method over learning rates, a cross if it failed."""
    axes = panels(figure, result.curves, 5.0)
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        ends = {}
        for method, found in methods.items():
            good = [(p["lr"], p["accuracy"]) for p in found if p["accuracy"] is not None]
            failed = [p["lr"] for p in found if p["accuracy"] is None]
            color = color_of(method)
            if good:
                style = {"marker": "o", "markersize": 3, **line_of(method)}
                axis.plot(*zip(*good, strict=True), color=color, **style)
                ends[method] = (*good[-1], color)
            axis.plot(failed, [2.0] * len(failed), "x", ms=5, color=color)
        axis.set_xscale("log")
        axis.set_ylim(0, 100)
        clean(axis, "learning rate", "validation accuracy, %", task)
        end_labels(axis, ends)


HYPER = Item(
    "hyper",
    ("table:hyper",),
    "The grid of learning rates",
    jobs_on(tasks_of),
    hyper,
    shown=False,
    partial=True,
)
SENSITIVITY = Item(
    "point-cloud",
    ("fig:point-cloud",),
    "Sensitivity to the learning rate",
    jobs_on(_clouds),
    cloud,
    draw_cloud,
    caption="Validation accuracy of the short tuning runs over the learning rate. A line that is "
    "high over many rates needs little tuning; a cross is a rate that failed.",
    partial=True,
)
