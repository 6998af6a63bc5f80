"""Test performance and convergence of Adam, SGD, SNOpt and rivals on the nine data sets."""

from __future__ import annotations

from typing import Any

from snopt.lab.paper.arms import RIVALS as METHODS
from snopt.lab.paper.arms import (
    Found,
    arm_item,
    beside,
    curves_by_arm,
    finals,
    main_arms,
    missing_notes,
    tasks_of,
)
from snopt.lab.paper.curves import curve, draw_curves
from snopt.lab.paper.item import Cell, Space
from snopt.lab.paper.names import TASKS
from snopt.lab.report.curves import Quantity

__all__ = ["ACCURACY", "CONVERGENCE"]


def _notes(space: Space) -> list[str]:
    best = ", ".join(f"{TASKS[task]} {_best(space, task)}" for task in tasks_of(space))
    left_out = missing_notes(METHODS) if space.scale == "cpu" else []
    return [*left_out, f"Best mean: {best}."]


def _best(space: Space, task: str) -> str:
    arms = main_arms(space, task)
    known = {arm.title: found.mean for arm in arms if (found := finals(space, arm)) is not None}
    choose = max if arms[0].config.mode == "max" else min
    return choose(known, key=known.__getitem__) if known else "none"


def _curves(found: Found) -> dict[str, Any]:
    metric = found.arm.config.metric
    return {
        "training loss": curve(found.runs, Quantity("training", "loss")),
        f"validation {metric}": curve(found.runs, Quantity("valid", metric)),
    }


def _end(name: str) -> Any:
    def cell(found: Found) -> Cell:
        loss = curve(found.runs, Quantity("training", "loss"))
        return loss[name][-1] if loss else None

    return cell


ACCURACY = arm_item(
    "accu",
    ("table:accu", "table:accu-bar"),
    "Test performance",
    tasks_of,
    main_arms,
    {
        "Accuracy in % or negative log-likelihood.": {
            **dict.fromkeys(("data set", "method", "rate", "test", "CPU seconds")),
            **beside("table:accu-bar"),
        }
    },
    notes=_notes,
)
CONVERGENCE = arm_item(
    "convergence",
    ("fig:convergence", "fig:convergence-full", "fig:convergence-full2"),
    "Convergence by CPU seconds and by iterations",
    tasks_of,
    main_arms,
    {
        "Where the curves end.": {
            "data set": None,
            "method": None,
            "training loss at the end": _end("mean"),
            "CPU seconds": None,
        }
    },
    curves=curves_by_arm(tasks_of, main_arms, _curves),
    draw=draw_curves,
)
