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
from snopt.lab.paper.curves import FLAT, clean, draw_curves, first_at, last_gain, legend, plot
from snopt.lab.paper.item import Cell, Result, Space
from snopt.lab.paper.items.variants import image_tasks
from snopt.lab.paper.names import TASKS, color_of, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import POINTS

SNOPT: tuple[OptimizerName, ...] = ("snopt_amortized", "snopt")

# ------------------------------------------------------------------- accuracy and convergence


def validation(arm: Arm) -> list[float]:
    """Return the validation metric along a training, averaged over the seeds."""
    found = arm.curve("valid", arm.config.metric)
    return found["mean"] if found else []


def best_rival(arms: list[Arm]) -> tuple[Arm, float] | None:
    """Return the method other than SNOpt with the best validation value, and that value."""
    choose = max if arms and arms[0].config.mode == "max" else min
    rivals = [arm for arm in arms if not arm.name.startswith("snopt")]
    known = [(arm, choose(values)) for arm in rivals if (values := validation(arm))]
    return choose(known, key=lambda pair: pair[1], default=None)


def accuracy_columns(arms: list[Arm]) -> Columns:
    """Return the columns of the main table, given all methods of a data set."""
    rival = best_rival(arms)

    def until_rival(key: str) -> Column:
        def cell(arm: Arm) -> Cell:
            found = arm.curve("valid", arm.config.metric)
            if rival is None or found is None:
                return None
            place = first_at(found, rival[1], arm.config.mode)
            return place[key] if place else "never"

        return cell

    return {
        **dict.fromkeys(("data set", "method", "rate", "schedule", "test", "CPU seconds")),
        "CPU seconds to the best rival's validation": until_rival("seconds"),
        "updates to it": until_rival("iteration"),
        "gain in the last quarter": _flat,
        **beside("table:accu-bar"),
    }


def _flat(arm: Arm) -> str:
    values = validation(arm)
    if not values:
        return "-"
    gain = last_gain(values, arm.config.mode)
    return "flat" if gain < FLAT else f"{100 * gain:.1f} %"


def _notes(space: Space) -> list[str]:
    best, rising = [], []
    for task in tasks_of(space):
        arms = main_arms(space, task)
        known = {arm.title: arm.finals.mean for arm in arms if arm.finals is not None}
        choose = max if arms[0].config.mode == "max" else min
        best.append(f"{TASKS[task]} {choose(known, key=known.__getitem__) if known else 'none'}")
        rival = best_rival(arms)
        if rival is not None and _flat(rival[0]) != "flat":
            rising.append(f"{TASKS[task]} ({rival[0].title})")
    early = "Test values at scale cpu are those of the model with the best validation value among "
    return [
        *(missing_notes(RIVALS) if space.scale == "cpu" else []),
        f"{early}{POINTS} evaluations along the run, for all methods alike.",
        f"Best mean: {', '.join(best)}.",
        f"A validation curve, averaged over seeds, is flat if its last quarter adds less than "
        f"{100 * FLAT:g} % of the gain from its first to its best value; otherwise the table shows "
        f"that share. The rule is the same for all. Best rival not flat on: "
        f"{', '.join(rising) or 'none'}.",
        "The best rival is the method other than SNOpt with the best validation value; seconds and "
        "updates are those until a method's validation curve first reaches it.",
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


ACCURACY = arm_item(
    "accu",
    ("table:accu", "table:accu-bar"),
    "Test performance",
    tasks_of,
    main_arms,
    {"Accuracy in % or negative log-likelihood.": accuracy_columns},
    notes=_notes,
)
CONVERGENCE = arm_item(
    "convergence",
    ("fig:convergence", "fig:convergence-full", "fig:convergence-full2"),
    "Convergence by CPU seconds and by iterations",
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
    draw=draw_curves,
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
    notes=lambda space: ["A step of LBFGS evaluates the loss and its gradient up to five times."],
)


def _recursive_tasks(space: Space) -> list[str]:
    if space.scale != "full" and not space.tasks:
        return ["mnist"]
    return [task for task in tasks_of(space) if task not in ("circle", "gas", "miniboone")]


def draw_recursive(figure: Any, result: Result) -> None:
    """Draw validation accuracy against seconds, one panel per data set."""
    figure.set_size_inches(4.5 * len(result.curves), 3.2)
    axes = figure.subplots(1, len(result.curves), squeeze=False)[0]
    for axis, (task, methods) in zip(axes, result.curves.items(), strict=True):
        for method, found in methods.items():
            if found is not None:
                plot(axis, found, "seconds", color=color_of(method), label=method)
        clean(axis, "CPU seconds", "validation accuracy", task)
    legend(figure, 4)


COLUMNS = ("data set", "method", "rate", "iterations", "test accuracy, %", "seconds per iteration")
RECURSIVE = arm_item(
    "recur-adj",
    ("fig:recur-adj",),
    "The recursive adjoint as a second-order optimizer",
    _recursive_tasks,
    lambda space, task: tuned_arms(space, task, ("recursive", *SNOPT)),
    {"SNOpt and the recursive adjoint as a second-order optimizer.": dict.fromkeys(COLUMNS)},
    notes=lambda space: [
        "The paper shows bars: SNOpt at least twice as fast, accuracies 5 to 15 points higher. It "
        "does not say how the recursive adjoint's second derivatives precondition; here a step "
        "solves with the damped Hessian by a few conjugate-gradient iterations, each product by "
        "the adjoint of the adjoint."
    ],
    of_arm=lambda arm: arm.curve("valid", "accuracy"),
    draw=draw_recursive,
)
