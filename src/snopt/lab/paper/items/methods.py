"""Methods side by side: test performance, convergence, LBFGS, the recursive adjoint and others."""

from __future__ import annotations

from typing import Any

from snopt.lab.paper.arms import (
    RIVALS,
    Arm,
    Column,
    Columns,
    arm_item,
    beside,
    clock_notes,
    installed,
    main_arms,
    missing_notes,
    tasks_of,
    tuned_arms,
)
from snopt.lab.paper.curves import FLAT, best_rival, clean, focus, grid, last_gain, lines
from snopt.lab.paper.headline import OURS, target_of, until, validated
from snopt.lab.paper.item import Cell, Result
from snopt.lab.paper.names import TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import POINTS
from snopt.lab.paper.tuning import FEWER

IMAGES = ("mnist", "svhn", "cifar10")
SNOPT = ("snopt_amortized", "snopt")

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

    return [
        *("data set", "method", "rate", "schedule", "weight decay", "test", "CPU seconds"),
        ("CPU seconds to the best rival's validation", until_rival("seconds")),
        ("updates to it", until_rival("iteration")),
        ("gain in the last quarter", _last_gain),
        beside("table:accu-bar"),
    ]


def _last_gain(arm: Arm) -> str:
    found = validated(arm.compact)
    if found is None:
        return "-"
    gain = last_gain(found["mean"], arm.config.mode)
    return "flat" if gain < FLAT else f"{100 * gain:.1f} %"


def _last_loss(arm: Arm) -> Cell:
    loss = arm.curve("training", "loss")
    return loss["mean"][-1] if loss else None


def draw_convergence(figure: Any, result: Result) -> None:
    """Draw the training loss, a panel per data set: by CPU seconds, and below by updates."""
    blocks = grid(figure, len(result.curves), blocks=2)
    words = {"seconds": "CPU seconds", "iteration": "updates"}
    for (x, word), axes in zip(words.items(), blocks, strict=True):
        for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
            loss, metric = next(iter(methods.values()))
            drawn = {name: found[loss] for name, found in methods.items() if found[loss]}
            clean(axis, word, "", f"{task}, {loss}")
            if drawn:
                focus(axis, [each["mean"] for each in drawn.values()], "min", log=True)
                axis.set_xlim(0, max(each[x][-1] for each in drawn.values()))
                valid = {name: found[metric] for name, found in methods.items()}
                rival = best_rival(valid, "max" if metric.endswith("accuracy") else "min")
                lines(axis, drawn, x, strong=(OURS, rival))


ACCURACY = arm_item(
    "accu",
    ("table:accu", "table:accu-bar"),
    "Test performance",
    tasks_of,
    main_arms,
    "Accuracy in % or negative log-likelihood, every method.",
    accuracy_columns,
    notes=lambda space: [
        *(missing_notes(RIVALS) if space.scale == "cpu" else []),
        *clock_notes(space),
        f"Test values at scale cpu: the model with the best validation value of {POINTS} "
        "evaluations.",
        f"Flat: the last quarter of the validation curve adds less than {100 * FLAT:g} % of the "
        "whole gain; otherwise the table has that share.",
    ],
    of_arm=lambda arm: arm.compact,
)
CONVERGENCE = arm_item(
    "convergence",
    ("fig:convergence", "fig:convergence-full", "fig:convergence-full2"),
    "Convergence by CPU seconds and by updates",
    tasks_of,
    main_arms,
    "The end of the curves.",
    ["data set", "method", ("training loss at the end", _last_loss), "CPU seconds"],
    of_arm=lambda arm: {
        "training loss": arm.curve("training", "loss"),
        f"validation {arm.config.metric}": arm.curve("valid", arm.config.metric),
    },
    draw=draw_convergence,
    caption="Training loss of the same runs by CPU seconds and, below, by updates: lower and "
    "further left is better. SNOpt (default) and the best rival on validation data are "
    "emphasised, with a band of one deviation over seeds; starts and spikes are clipped.",
)

# ------------------------------------------------------------------------------ other methods

OTHER = ("adam", "adamw", "muon", "soap", "singd", "snopt")
OTHERS = arm_item(
    "others",
    (),
    "Optimizers beyond the paper's",
    lambda space: space.among(IMAGES, cpu=("mnist",)),
    lambda space, task: tuned_arms(space, task, installed(OTHER)),
    "Optimizers beyond the paper's, tuned alike.",
    ("data set", "method", "rate", "test accuracy, %", "seconds per iteration"),
    notes=lambda space: missing_notes(OTHER),
)

TARGET = 0.9
"""The accuracy whose time the paper reports for LBFGS."""


def reached(arm: Arm) -> list[tuple[float, float]]:
    """Return iterations and seconds to the target, of the runs that reach it."""
    tables = [run.records.split("valid").table("accuracy") for run in arm.runs]
    good = [table[table[:, 2] >= TARGET] for table in tables]
    return [(float(rows[0, 0]), float(rows[0, 1])) for rows in good if len(rows)]


PAPER = published("table:lbfgs")


def _same_four(arm: Arm) -> str:
    same = ("accuracy", "seconds_per_iteration", "iterations_to_90", "seconds_to_90")
    return " / ".join(PAPER.text(arm.row, column) for column in same)


LBFGS = arm_item(
    "lbfgs",
    ("table:lbfgs",),
    "LBFGS",
    lambda space: space.among(("mnist",)),
    lambda space, task: tuned_arms(space, task, ("lbfgs", *SNOPT)),
    "LBFGS and SNOpt on MNIST.",
    [
        *("method", "iterations", "test accuracy, %", "seconds per iteration"),
        ("iterations to 90 %", lambda arm: mean_of(k for k, _ in reached(arm))),
        ("seconds to 90 %", lambda arm: mean_of(s for _, s in reached(arm))),
        ("runs that reach it", lambda arm: f"{len(reached(arm))} of {len(arm.runs)}"),
        (f"paper, Table {PAPER.number}: the same four", _same_four),
    ],
    notes=lambda space: [
        "A step of LBFGS evaluates the loss and its gradient up to five times; at scale cpu it "
        f"makes {FEWER['lbfgs']} times fewer updates."
    ],
)


def draw_recursive(figure: Any, result: Result) -> None:
    """Draw validation accuracy against seconds, one panel per data set."""
    axes = grid(figure, len(result.curves), columns=2, height=3.0)[0]
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        clean(axis, "CPU seconds", "validation accuracy", task)
        lines(axis, methods, "seconds")


RECURSIVE = arm_item(
    "recur-adj",
    ("fig:recur-adj",),
    "The recursive adjoint as a second-order optimizer",
    lambda space: space.among(list(TASKS)[:-3], cpu=("mnist",)),  # not the densities
    lambda space, task: tuned_arms(space, task, ("recursive", *SNOPT)),
    "SNOpt and the recursive adjoint as a second-order optimizer.",
    ("data set", "method", "rate", "iterations", "test accuracy, %", "seconds per iteration"),
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
