"""The grid of settings, what it chose, and how much results depend on the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from snopt.lab.config import OptimizerName
from snopt.lab.paper.arms import searched, tasks_of
from snopt.lab.paper.curves import clean, legend
from snopt.lab.paper.item import Cell, Item, Result, Space, Table
from snopt.lab.paper.jobs import Job, Training
from snopt.lab.paper.names import METHODS, TASKS, color_of
from snopt.lab.paper.tuning import final, points, tuning_jobs
from snopt.lab.report.curves import Quantity, table_of
from snopt.lab.report.read import read_run

CLOUDS = ("mnist", "spoken_arabic_digits", "character_trajectories")
"""Data sets of the sensitivity analysis."""


def searches(space: Space, tasks: list[str]) -> Iterator[tuple[str, OptimizerName, list[Training]]]:
    """Yield data set, method and runs of every search."""
    for task in tasks:
        for optimizer in searched(space):
            yield task, optimizer, tuning_jobs(space, task, optimizer)


def hyper_jobs(space: Space) -> list[Job]:
    """Return the runs of the grid on every data set."""
    return [job for *_, jobs in searches(space, tasks_of(space)) for job in jobs]


def hyper(space: Space) -> Result:
    """Tabulate what each setting led to."""
    rows: list[list[Cell]] = [
        [
            TASKS[task],
            METHODS[optimizer],
            f"{job.config.optimizer.lr:g}",
            "constant" if job.config.optimizer.cosine is None else "cosine",
            f"{job.config.optimizer.weight_decay:g}",
            final(job) * (100 if job.config.metric == "accuracy" else 1),
            str(job.config.train.iterations or f"{job.config.train.epochs} epochs"),
        ]
        for task, optimizer, jobs in searches(space, tasks_of(space))
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


def cloud_jobs(space: Space) -> list[Job]:
    """Return the runs of the sensitivity analysis."""
    return [job for *_, jobs in searches(space, _clouds(space)) for job in jobs]


def cloud(space: Space) -> Result:
    """Collect a point per run: training loss at the end and validation accuracy."""
    curves: dict[str, Any] = {}
    rows: list[list[Cell]] = []
    for task, optimizer, jobs in searches(space, _clouds(space)):
        found = [_point(job) for job in jobs[: len(points(task, optimizer, space.scale))]]
        curves.setdefault(TASKS[task], {})[METHODS[optimizer]] = found
        known = [point["accuracy"] for point in found if not math.isnan(point["accuracy"])]
        ends: list[Cell] = [max(known, default=None), min(known, default=None)]
        failed = f"{len(found) - len(known)}"
        rows.append([TASKS[task], METHODS[optimizer], len(found), failed, *ends])
    columns = ["data set", "method", "rates", "failed", "best accuracy, %", "worst accuracy, %"]
    caption = "Validation accuracy at the end, over all learning rates tried."
    return Result([Table(caption, columns, rows)], [], curves)


def _point(job: Training) -> dict[str, float]:
    losses = table_of(read_run(job.folder), Quantity("training", "loss"))[-10:, 2]
    return {
        "lr": job.config.optimizer.lr,
        "loss": float(losses.mean()) if len(losses) else math.nan,
        "accuracy": 100 * final(job),
    }


def draw_cloud(figure: Any, result: Result) -> None:
    """Draw one panel per data set and one mark per run, sized by the learning rate."""
    figure.set_size_inches(4.2 * len(result.curves), 3.4)
    axes = figure.subplots(1, len(result.curves), squeeze=False)[0]
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        for k, (method, found) in enumerate(methods.items()):
            axis.scatter(
                [point["loss"] for point in found],
                [point["accuracy"] for point in found],
                s=[40 + 25 * j for j in range(len(found))],
                marker="os^D"[k % 4],
                color=color_of(method),
                alpha=0.75,
                label=method,
            )
        axis.set_xscale("log", subs=(1.5, 2, 3, 4, 5, 7))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("{x:g}")
        clean(axis, "training loss at the end", "validation accuracy, %", task)
    legend(figure, 4)


HYPER = Item(
    "hyper", ("table:hyper",), "The grid of learning rates", hyper_jobs, hyper, shown=False
)
SENSITIVITY = Item(
    "point-cloud",
    ("fig:point-cloud",),
    "Sensitivity to the learning rate",
    cloud_jobs,
    cloud,
    draw_cloud,
)
