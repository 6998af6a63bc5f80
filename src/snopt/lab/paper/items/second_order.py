"""SNOpt beside other second-order methods: LBFGS and the recursive adjoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snopt.lab.config import OptimizerName
from snopt.lab.paper.arms import Arm, finals_text, runs_of, trainings
from snopt.lab.paper.curves import clean, curve, plot
from snopt.lab.paper.item import Cell, Item, Job, Result, Space, Table
from snopt.lab.paper.items.accuracy import tasks_of, tuned_arms
from snopt.lab.paper.names import METHODS, TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import cut_note
from snopt.lab.paper.tuning import FEWER
from snopt.lab.report.curves import Quantity
from snopt.lab.report.figures import PALETTE
from snopt.lab.report.read import Run
from snopt.lab.report.summary import seconds_per_iteration

__all__ = ["LBFGS", "RECURSIVE"]

WITH_LBFGS: tuple[OptimizerName, ...] = ("lbfgs", "snopt_amortized", "snopt")
WITH_RECURSIVE: tuple[OptimizerName, ...] = ("recursive", "snopt_amortized", "snopt")
TARGET = 0.9
"""The accuracy whose time the paper reports."""


# --------------------------------------------------------------------------------------- LBFGS


def _lbfgs_tasks(space: Space) -> list[str]:
    return space.among(("mnist",))


def _lbfgs_jobs(space: Space) -> list[Job]:
    made: list[Job] = []
    for task in _lbfgs_tasks(space):
        arms, waiting = tuned_arms(space, task, WITH_LBFGS)
        made += waiting or trainings(space, arms)
    return made


def reached(run: Run, target: float) -> tuple[float, float] | None:
    """Return iterations and seconds of the first validation accuracy at or above a target."""
    for record in run.records.evals.get("valid", []):
        if record.values.get("accuracy", 0.0) >= target:
            return record.iteration, record.seconds
    return None


def _lbfgs_result(space: Space) -> Result:
    paper = published("table:lbfgs")
    rows: list[list[Cell]] = []
    for task in _lbfgs_tasks(space):
        for arm in tuned_arms(space, task, WITH_LBFGS)[0]:
            runs = runs_of(space, arm)
            there = [found for run in runs if (found := reached(run, TARGET)) is not None]
            row = {"lbfgs": "lbfgs", "snopt_amortized": "snopt"}.get(arm.name, "-")
            values = [paper.text(row, column) for column in _COLUMNS]
            rows.append(
                [
                    METHODS[arm.name],
                    finals_text(space, arm),
                    mean_of(seconds_per_iteration(run) for run in runs),
                    mean_of(iterations for iterations, _ in there),
                    mean_of(seconds for _, seconds in there),
                    f"{len(there)} of {len(runs)}",
                    " / ".join(values),
                ]
            )
    columns = [
        "method",
        "test accuracy, %",
        "seconds an iteration",
        "iterations to 90 %",
        "seconds to 90 %",
        "runs that got there",
        f"paper, Table {paper.number}: the same four",
    ]
    note = "A step of LBFGS has up to five evaluations of the loss and its gradient."
    return Result(
        [Table("LBFGS and SNOpt on MNIST.", columns, rows)],
        [note, *(n for t in _lbfgs_tasks(space) if (n := cut_note(t, space.scale)))],
    )


_COLUMNS = ("accuracy", "seconds_per_iteration", "iterations_to_90", "seconds_to_90")

LBFGS = Item(
    "lbfgs",
    ("table:lbfgs",),
    "LBFGS",
    _lbfgs_jobs,
    _lbfgs_result,
)

# --------------------------------------------------------------------------- recursive adjoint


def _recursive_tasks(space: Space) -> list[str]:
    if space.scale != "full" and not space.tasks:
        return ["mnist"]
    return [task for task in tasks_of(space) if task not in ("circle", "gas", "miniboone")]


def recursive_arms(space: Space, task: str) -> tuple[list[Arm], list[Job]]:
    """Return the arms, the recursive adjoint's shorter at scale ``cpu``: its steps are long."""
    arms, waiting = tuned_arms(space, task, WITH_RECURSIVE)
    if space.scale == "cpu":
        arms = [_shortened(arm) if arm.name in FEWER else arm for arm in arms]
    return arms, waiting


def _shortened(arm: Arm) -> Arm:
    train = arm.config.train
    fewer = FEWER[arm.name]
    length, every = (train.iterations or 1) // fewer, (train.evaluate_every or 1) // fewer
    shorter = replace(train, iterations=max(length, 1), evaluate_every=max(every, 1))
    return Arm(arm.name, replace(arm.config, train=shorter))


def _recursive_jobs(space: Space) -> list[Job]:
    made: list[Job] = []
    for task in _recursive_tasks(space):
        arms, waiting = recursive_arms(space, task)
        made += waiting or trainings(space, arms)
    return made


def _recursive_result(space: Space) -> Result:
    curves: dict[str, Any] = {}
    rows: list[list[Cell]] = []
    for task in _recursive_tasks(space):
        for arm in recursive_arms(space, task)[0]:
            runs = runs_of(space, arm)
            rows.append(
                [
                    TASKS[task],
                    METHODS[arm.name],
                    f"{arm.config.optimizer.lr:g}",
                    arm.config.train.iterations,
                    finals_text(space, arm),
                    mean_of(seconds_per_iteration(run) for run in runs),
                ]
            )
            found = curve(runs, Quantity("valid", "accuracy"))
            curves.setdefault(TASKS[task], {})[METHODS[arm.name]] = found
    columns = [
        "data set",
        "method",
        "rate",
        "iterations",
        "test accuracy, %",
        "seconds an iteration",
    ]
    notes = [
        "The paper shows bars: SNOpt at least twice as fast, accuracies 5 to 15 points higher. It "
        "does not say how the recursive adjoint's second derivatives precondition; here a step "
        "solves with the damped Hessian by a few conjugate-gradient iterations, each product by "
        "the adjoint of the adjoint.",
        *(n for t in _recursive_tasks(space) if (n := cut_note(t, space.scale))),
    ]
    caption = "SNOpt and the recursive adjoint as a second-order optimizer."
    return Result([Table(caption, columns, rows)], notes, curves)


def draw_recursive(figure: Any, result: Result) -> None:
    """Draw validation accuracy against seconds, a panel a data set."""
    figure.set_size_inches(4.5 * len(result.curves), 3.2)
    axes = figure.subplots(1, len(result.curves), squeeze=False)[0]
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        for k, (method, found) in enumerate(methods.items()):
            if found is not None:
                plot(axis, found, "seconds", color=PALETTE[k], label=method)
        clean(axis, "seconds of training", "validation accuracy", task)
    axes[0].legend(frameon=False, fontsize=8)


RECURSIVE = Item(
    "recur-adj",
    ("fig:recur-adj",),
    "The recursive adjoint as a second-order optimizer",
    _recursive_jobs,
    _recursive_result,
    draw_recursive,
)
