"""Test performance and convergence of Adam, SGD and SNOpt on the nine data sets."""

from __future__ import annotations

from typing import Any

from snopt.lab.paper.arms import (
    arm_jobs,
    arm_table,
    arms_of_all,
    beside,
    finals,
    runs_of,
    tasks_of,
    tuned_arms,
)
from snopt.lab.paper.curves import curve, draw_curves
from snopt.lab.paper.item import Cell, Item, Job, Result, Space, Table
from snopt.lab.paper.names import TASKS
from snopt.lab.paper.scales import cut_notes
from snopt.lab.report.curves import Quantity

__all__ = ["ACCURACY", "CONVERGENCE"]


def jobs(space: Space) -> list[Job]:
    """List tuning and runs of every data set."""
    return arm_jobs(space, tasks_of(space), tuned_arms)


def result(space: Space) -> Result:
    """Gather test performance, with deviations."""
    tasks = tasks_of(space)
    columns = {"data set": None, "method": None, "rate": None, "test": None}
    table = arm_table(
        "Accuracy in % or negative log-likelihood.",
        space,
        arms_of_all(space, tasks, tuned_arms),
        {**columns, **beside("table:accu-bar")},
    )
    best = ", ".join(f"{TASKS[task]} {_best(space, task)}" for task in tasks)
    return Result([table], [*cut_notes(tasks, space.scale), f"Best mean: {best}."])


def _best(space: Space, task: str) -> str:
    arms = tuned_arms(space, task)[0]
    known = {arm.title: found.mean for arm in arms if (found := finals(space, arm)) is not None}
    choose = max if arms[0].config.mode == "max" else min
    return choose(known, key=known.__getitem__) if known else "none"


def convergence(space: Space) -> Result:
    """Gather the curves: training loss and validation metric by seconds and by iterations."""
    curves: dict[str, Any] = {}
    rows: list[list[Cell]] = []
    for arm in arms_of_all(space, tasks_of(space), tuned_arms):
        runs, metric, task = runs_of(space, arm), arm.config.metric, TASKS[arm.config.task]
        loss = curve(runs, Quantity("training", "loss"))
        curves.setdefault(task, {})[arm.title] = {
            "training loss": loss,
            f"validation {metric}": curve(runs, Quantity("valid", metric)),
        }
        ends: list[Cell] = [loss[name][-1] if loss else None for name in ("mean", "seconds")]
        rows.append([task, arm.title, *ends])
    columns = ["data set", "method", "training loss at the end", "seconds"]
    return Result([Table("Where the curves end.", columns, rows)], [], curves)


ACCURACY = Item("accu", ("table:accu", "table:accu-bar"), "Test performance", jobs, result)
CONVERGENCE = Item(
    "convergence",
    ("fig:convergence", "fig:convergence-full", "fig:convergence-full2"),
    "Convergence by seconds and by iterations",
    jobs,
    convergence,
    draw_curves,
)
