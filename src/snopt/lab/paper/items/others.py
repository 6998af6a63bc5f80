"""Optimizers that the paper does not have, beside Adam and SNOpt."""

from __future__ import annotations

from snopt.lab.paper.arms import Arm, arm_item, missing, missing_notes, tuned_arms
from snopt.lab.paper.item import Space
from snopt.lab.paper.items.variants import image_tasks

__all__ = ["OTHERS"]

BESIDE = ("adam", "adamw", "muon", "soap", "singd", "snopt")


def _arms(space: Space, task: str) -> list[Arm]:
    return tuned_arms(space, task, [name for name in BESIDE if name not in missing(BESIDE)])


OTHERS = arm_item(
    "others",
    (),
    "Optimizers beyond the paper's",
    image_tasks,
    _arms,
    {
        "Optimizers beyond the paper's, tuned alike.": dict.fromkeys(
            ("data set", "method", "rate", "test accuracy, %", "seconds an iteration")
        )
    },
    notes=lambda space: missing_notes(BESIDE),
)
