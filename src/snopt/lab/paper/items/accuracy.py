"""Test performance and convergence of Adam, SGD and SNOpt on the nine data sets."""

from __future__ import annotations

from typing import Any

from snopt.lab.config import OptimizerName, Scale
from snopt.lab.paper.arms import Arm, finals, finals_text, runs_of, trainings
from snopt.lab.paper.curves import Curve, curve, draw_curves
from snopt.lab.paper.item import Cell, Item, Job, Result, Space, Table
from snopt.lab.paper.names import METHODS, TASKS
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import cut_note
from snopt.lab.paper.tuning import tuned
from snopt.lab.report.curves import Quantity

__all__ = ["ACCURACY", "CONVERGENCE", "OPTIMIZERS", "tuned_arms"]

OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "sgd", "snopt_amortized", "snopt")
BY_DEFAULT: dict[Scale, tuple[str, ...]] = {
    # One of each kind.
    "smoke": ("mnist", "spoken_arabic_digits", "circle"),
    # Without SVHN and Gas, of which a little and nothing is at hand.
    "cpu": tuple(task for task in TASKS if task not in ("svhn", "gas")),
    "full": tuple(TASKS),
}
"""Data sets that are looked at unless others are asked for."""


def tasks_of(space: Space) -> list[str]:
    """Return the data sets to look at, in the paper's order."""
    wanted = space.tasks or BY_DEFAULT[space.scale]
    return [task for task in TASKS if task in wanted]


def tuned_arms(
    space: Space, task: str, optimizers: tuple[OptimizerName, ...] = OPTIMIZERS
) -> tuple[list[Arm], list[Job]]:
    """Return an arm for each optimizer at its chosen rate, and the tuning that is still to do.

    Args:
        space: where the records are.
        task: the data set.
        optimizers: what trains it.
    """
    arms, waiting = [], []
    for optimizer in optimizers:
        config, jobs = tuned(space, task, optimizer)
        waiting += jobs
        if config is not None:
            arms.append(Arm(optimizer, config))
    return arms, waiting


def jobs(space: Space) -> list[Job]:
    """List tuning and runs of every data set."""
    made: list[Job] = []
    for task in tasks_of(space):
        arms, waiting = tuned_arms(space, task)
        made += waiting or trainings(space, arms)
    return made


def result(space: Space) -> Result:
    """Gather test performance, with deviations."""
    paper = published("table:accu-bar")
    rows: list[list[Cell]] = []
    for task in tasks_of(space):
        for arm in tuned_arms(space, task)[0]:
            row = "snopt" if arm.name == "snopt_amortized" else arm.name
            rows.append(
                [
                    TASKS[task],
                    METHODS[arm.name],
                    f"{arm.config.optimizer.lr:g}",
                    finals_text(space, arm),
                    paper.text(row, task) if arm.name != "snopt" else "-",
                ]
            )
    columns = ["data set", "method", "rate", "test", f"paper, Table {paper.number}"]
    notes = [note for task in tasks_of(space) if (note := cut_note(task, space.scale))]
    best = ", ".join(f"{TASKS[task]} {_best(space, task)}" for task in tasks_of(space))
    notes.append(f"Best mean: {best}.")
    return Result([Table("Accuracy in % or negative log-likelihood.", columns, rows)], notes)


def _best(space: Space, task: str) -> str:
    arms = tuned_arms(space, task)[0]
    known = {arm.name: found.mean for arm in arms if (found := finals(space, arm)) is not None}
    choose = max if arms[0].config.mode == "max" else min
    return METHODS[choose(known, key=known.__getitem__)] if known else "none"


def convergence(space: Space) -> Result:
    """Gather the curves: training loss and validation metric by seconds and by iterations."""
    curves: dict[str, Any] = {}
    rows: list[list[Cell]] = []
    for task in tasks_of(space):
        for arm in tuned_arms(space, task)[0]:
            runs = runs_of(space, arm)
            found: dict[str, Curve | None] = {
                "training loss": curve(runs, Quantity("training", "loss")),
                f"validation {arm.config.metric}": curve(
                    runs, Quantity("valid", arm.config.metric)
                ),
            }
            curves.setdefault(TASKS[task], {})[METHODS[arm.name]] = found
            loss = found["training loss"]
            ends: list[Cell] = [loss[name][-1] if loss else None for name in ("mean", "seconds")]
            rows.append([TASKS[task], METHODS[arm.name], *ends])
    columns = ["data set", "method", "training loss at the end", "seconds"]
    return Result([Table("Where the curves end.", columns, rows)], [], curves)


ACCURACY = Item(
    "accu",
    ("table:accu", "table:accu-bar"),
    "Test performance",
    jobs,
    result,
)
CONVERGENCE = Item(
    "convergence",
    ("fig:convergence", "fig:convergence-full", "fig:convergence-full2"),
    "Convergence by seconds and by iterations",
    jobs,
    convergence,
    draw_curves,
)
