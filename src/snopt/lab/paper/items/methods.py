"""Methods side by side: test performance, convergence, LBFGS, the recursive adjoint and others."""

from __future__ import annotations

from typing import Any

from snopt.lab.config import OptimizerName
from snopt.lab.paper.arms import (
    RIVALS,
    Arm,
    Column,
    Columns,
    arm_item,
    beside,
    main_arms,
    missing,
    missing_notes,
    tasks_of,
    tuned_arms,
)
from snopt.lab.paper.curves import FLAT, clean, focus, last_gain, lines, panels
from snopt.lab.paper.headline import target_of, until, validated
from snopt.lab.paper.item import Cell, Result, Space
from snopt.lab.paper.items.variants import image_tasks
from snopt.lab.paper.names import TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import POINTS
from snopt.lab.paper.tuning import FEWER

SNOPT: tuple[OptimizerName, ...] = ("snopt_amortized", "snopt")

# ------------------------------------------------------------------- accuracy and convergence


def accuracy_columns(arms: list[Arm]) -> Columns:
    """Return the columns of the main table, given all methods of a data set."""
    target = target_of({arm.title: arm.compact for arm in arms})

    def until_rival(key: str) -> Column:
        def cell(arm: Arm) -> Cell:
            if target is None or not arm.compact["runs"]:
                return None
            place = until(arm.compact, target[1], key)
            return "never" if place is None else place

        return cell

    return {
        **dict.fromkeys(("data set", "method", "rate", "schedule", "test", "CPU seconds")),
        "CPU seconds to the best rival's validation": until_rival("seconds"),
        "updates to it": until_rival("iteration"),
        "gain in the last quarter": _flat,
        **beside("table:accu-bar"),
    }


def _flat(arm: Arm) -> str:
    found = validated(arm.compact)
    if found is None:
        return "-"
    gain = last_gain(found["mean"], arm.config.mode)
    return "flat" if gain < FLAT else f"{100 * gain:.1f} %"


def _notes(space: Space) -> list[str]:
    return [
        *(missing_notes(RIVALS) if space.scale == "cpu" else []),
        f"Test values at scale cpu: the model with the best validation value of {POINTS} "
        "evaluations.",
        f"Flat: the last quarter of the validation curve adds less than {100 * FLAT:g} % of the "
        "whole gain; otherwise the table has that share.",
    ]


def _convergence(arm: Arm) -> dict[str, Any]:
    metric = arm.config.metric
    return {
        "training loss": arm.curve("training", "loss"),
        f"validation {metric}": arm.curve("valid", metric),
    }


def _last_loss(arm: Arm) -> Cell:
    loss = arm.curve("training", "loss")
    return loss["mean"][-1] if loss else None


def draw_convergence(figure: Any, result: Result) -> None:
    """Draw a row per data set: training loss by seconds and updates, and the metric by updates."""
    figure.set_size_inches(13, 2.7 * max(len(result.curves), 1))
    axes = figure.subplots(max(len(result.curves), 1), 3, squeeze=False)
    for (task, methods), row in zip(result.curves.items(), axes, strict=True):
        loss, metric = next(iter(methods.values()))
        panels = ((loss, "seconds"), (loss, "iteration"), (metric, "iteration"))
        for axis, (quantity, x) in zip(row, panels, strict=True):
            drawn = {name: found[quantity] for name, found in methods.items() if found[quantity]}
            if drawn:
                rising = quantity.endswith("accuracy")
                focus(axis, [each["mean"] for each in drawn.values()], "max" if rising else "min")
                axis.set_xlim(0, max(each[x][-1] for each in drawn.values()))
                lines(axis, drawn, x)
            clean(axis, "CPU seconds" if x == "seconds" else "updates", quantity, task)


ACCURACY = arm_item(
    "accu",
    ("table:accu", "table:accu-bar"),
    "Test performance",
    tasks_of,
    main_arms,
    {"Accuracy in % or negative log-likelihood, every method.": accuracy_columns},
    notes=_notes,
    of_arm=lambda arm: arm.compact,
)
CONVERGENCE = arm_item(
    "convergence",
    ("fig:convergence", "fig:convergence-full", "fig:convergence-full2"),
    "Convergence by CPU seconds and by updates",
    tasks_of,
    main_arms,
    {
        "The end of the curves.": {
            "data set": None,
            "method": None,
            "training loss at the end": _last_loss,
            "CPU seconds": None,
        }
    },
    of_arm=_convergence,
    draw=draw_convergence,
    caption="The same runs as above. A line that is lower (loss) or higher (accuracy) further "
    "left is faster; bands are the range over seeds, and starts and spikes are clipped.",
)

# ------------------------------------------------------------------------------ other methods

OTHER = ("adam", "adamw", "muon", "soap", "singd", "snopt")
OTHERS = arm_item(
    "others",
    (),
    "Optimizers beyond the paper's",
    image_tasks,
    lambda space, task: tuned_arms(space, task, [m for m in OTHER if m not in missing(OTHER)]),
    {
        "Optimizers beyond the paper's, tuned alike.": dict.fromkeys(
            ("data set", "method", "rate", "test accuracy, %", "seconds per iteration")
        )
    },
    notes=lambda space: missing_notes(OTHER),
)

TARGET = 0.9
"""The accuracy whose time the paper reports for LBFGS."""


def reached(arm: Arm) -> list[tuple[float, float]]:
    """Return iterations and seconds to the target, of the runs that reach it."""
    tables = [run.records.split("valid").table("accuracy") for run in arm.runs]
    good = [table[table[:, 2] >= TARGET] for table in tables]
    return [(float(rows[0, 0]), float(rows[0, 1])) for rows in good if len(rows)]


def _lbfgs_columns() -> Columns:
    paper = published("table:lbfgs")
    same = ("accuracy", "seconds_per_iteration", "iterations_to_90", "seconds_to_90")
    return {
        **dict.fromkeys(("method", "iterations", "test accuracy, %", "seconds per iteration")),
        "iterations to 90 %": lambda arm: mean_of(k for k, _ in reached(arm)),
        "seconds to 90 %": lambda arm: mean_of(s for _, s in reached(arm)),
        "runs that reach it": lambda arm: f"{len(reached(arm))} of {len(arm.runs)}",
        f"paper, Table {paper.number}: the same four": lambda arm: " / ".join(
            paper.text(arm.row, column) for column in same
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
        "A step of LBFGS evaluates the loss and its gradient up to five times; at scale cpu it "
        f"makes {FEWER['lbfgs']} times fewer updates."
    ],
)


def draw_recursive(figure: Any, result: Result) -> None:
    """Draw validation accuracy against seconds, one panel per data set."""
    axes = panels(figure, result.curves, 4.5)
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        lines(axis, methods, "seconds")
        clean(axis, "CPU seconds", "validation accuracy", task)


COLUMNS = ("data set", "method", "rate", "iterations", "test accuracy, %", "seconds per iteration")
RECURSIVE = arm_item(
    "recur-adj",
    ("fig:recur-adj",),
    "The recursive adjoint as a second-order optimizer",
    lambda space: space.among(list(TASKS)[:-3], few=("mnist",)),  # not the densities
    lambda space, task: tuned_arms(space, task, ("recursive", *SNOPT)),
    {"SNOpt and the recursive adjoint as a second-order optimizer.": dict.fromkeys(COLUMNS)},
    notes=lambda space: [
        "The paper shows bars: SNOpt at least twice as fast, accuracies 5 to 15 points higher. It "
        "does not say how the recursive adjoint's second derivatives precondition; here a step "
        "solves with the damped Hessian by a few conjugate-gradient iterations, each product by "
        "the adjoint of the adjoint. At scale cpu it makes "
        f"{FEWER['recursive']} times fewer updates."
    ],
    of_arm=lambda arm: arm.curve("valid", "accuracy"),
    draw=draw_recursive,
    caption="Further left and higher is better.",
)
