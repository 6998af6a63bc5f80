"""SNOpt beside other second-order methods: LBFGS and the recursive adjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from snopt.lab.config import OptimizerName
from snopt.lab.paper.arms import Arm, Found, arm_item, curves_by_arm, tasks_of, tuned_arms
from snopt.lab.paper.curves import clean, curve, plot
from snopt.lab.paper.item import Cell, Result, Space
from snopt.lab.paper.names import color_of, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.tuning import FEWER
from snopt.lab.report.curves import Quantity

__all__ = ["LBFGS", "RECURSIVE"]

SNOPT: tuple[OptimizerName, ...] = ("snopt_amortized", "snopt")
TARGET = 0.9
"""The accuracy whose time the paper reports."""


# --------------------------------------------------------------------------------------- LBFGS


def reached(found: Found) -> list[tuple[float, float]]:
    """Return iterations and seconds of the first accuracy at the target, of runs that got there."""
    tables = [run.records.split("valid").table("accuracy") for run in found.runs]
    good = [table[table[:, 2] >= TARGET] for table in tables]
    return [(float(rows[0, 0]), float(rows[0, 1])) for rows in good if len(rows)]


def _lbfgs_columns() -> dict[str, Callable[[Found], Cell] | None]:
    paper = published("table:lbfgs")
    same = ("accuracy", "seconds_per_iteration", "iterations_to_90", "seconds_to_90")
    return {
        "method": None,
        "test accuracy, %": None,
        "seconds an iteration": None,
        "iterations to 90 %": lambda found: mean_of(k for k, _ in reached(found)),
        "seconds to 90 %": lambda found: mean_of(s for _, s in reached(found)),
        "runs that got there": lambda found: f"{len(reached(found))} of {len(found.runs)}",
        f"paper, Table {paper.number}: the same four": lambda found: " / ".join(
            paper.text(found.arm.row, column) for column in same
        ),
    }


LBFGS = arm_item(
    "lbfgs",
    ("table:lbfgs",),
    "LBFGS",
    lambda space: space.among(("mnist",)),
    lambda space, task: tuned_arms(space, task, ("lbfgs", *SNOPT)),
    {"LBFGS and SNOpt on MNIST.": _lbfgs_columns()},
    notes=lambda space: [
        "A step of LBFGS has up to five evaluations of the loss and its gradient."
    ],
)

# --------------------------------------------------------------------------- recursive adjoint


def _recursive_tasks(space: Space) -> list[str]:
    if space.scale != "full" and not space.tasks:
        return ["mnist"]
    return [task for task in tasks_of(space) if task not in ("circle", "gas", "miniboone")]


def recursive_arms(space: Space, task: str) -> list[Arm]:
    """Return the arms, the recursive adjoint's shorter at scale ``cpu``: its steps are long."""
    arms = tuned_arms(space, task, ("recursive", *SNOPT))
    if space.scale != "cpu":
        return arms
    return [_shortened(arm) if arm.name in FEWER else arm for arm in arms]


def _shortened(arm: Arm) -> Arm:
    train, fewer = arm.config.train, FEWER[arm.name]
    length, every = (train.iterations or 1) // fewer, (train.evaluate_every or 1) // fewer
    shorter = replace(train, iterations=max(length, 1), evaluate_every=max(every, 1))
    return replace(arm, config=replace(arm.config, train=shorter))


def draw_recursive(figure: Any, result: Result) -> None:
    """Draw validation accuracy against seconds, a panel a data set."""
    figure.set_size_inches(4.5 * len(result.curves), 3.2)
    axes = figure.subplots(1, len(result.curves), squeeze=False)[0]
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        for method, found in methods.items():
            if found is not None:
                plot(axis, found, "seconds", color=color_of(method), label=method)
        clean(axis, "CPU seconds", "validation accuracy", task)
    axes[0].legend(frameon=False, fontsize=8)


COLUMNS = ("data set", "method", "rate", "iterations", "test accuracy, %", "seconds an iteration")
RECURSIVE = arm_item(
    "recur-adj",
    ("fig:recur-adj",),
    "The recursive adjoint as a second-order optimizer",
    _recursive_tasks,
    recursive_arms,
    {"SNOpt and the recursive adjoint as a second-order optimizer.": dict.fromkeys(COLUMNS)},
    notes=lambda space: [
        "The paper shows bars: SNOpt at least twice as fast, accuracies 5 to 15 points higher. It "
        "does not say how the recursive adjoint's second derivatives precondition; here a step "
        "solves with the damped Hessian by a few conjugate-gradient iterations, each product by "
        "the adjoint of the adjoint."
    ],
    curves=curves_by_arm(
        _recursive_tasks,
        recursive_arms,
        lambda found: curve(found.runs, Quantity("valid", "accuracy")),
    ),
    draw=draw_recursive,
)
