"""Optimizers that the paper does not have, beside Adam and SNOpt."""

from __future__ import annotations

from snopt.lab.config import OptimizerName
from snopt.lab.optimizers import find
from snopt.lab.paper.arms import Arm, arm_jobs, arm_table, arms_of_all, tuned_arms
from snopt.lab.paper.item import Item, Job, Result, Space
from snopt.lab.paper.items.variants import image_tasks
from snopt.lab.paper.names import METHODS
from snopt.lab.paper.scales import cut_notes

__all__ = ["OTHERS"]

BESIDE: tuple[OptimizerName, ...] = ("adam", "adamw", "muon", "soap", "singd", "snopt")


def _missing() -> list[OptimizerName]:
    """Return those that cannot be run here."""
    return [name for name in BESIDE if not find(name).installed]


def _arms(space: Space, task: str) -> tuple[list[Arm], list[Job]]:
    return tuned_arms(space, task, [name for name in BESIDE if name not in _missing()])


def _result(space: Space) -> Result:
    tasks = image_tasks(space)
    names = ("data set", "method", "rate", "test accuracy, %", "seconds an iteration")
    caption = "Optimizers beyond the paper's, tuned alike."
    arms = arms_of_all(space, tasks, _arms)
    table = arm_table(caption, space, arms, dict.fromkeys(names))
    left_out = [f"{METHODS[o]} is left out: `pip install {find(o).package}`." for o in _missing()]
    return Result([table], [*left_out, *cut_notes(tasks, space.scale)])


OTHERS = Item(
    "others",
    (),
    "Optimizers beyond the paper's",
    lambda space: arm_jobs(space, image_tasks(space), _arms),
    _result,
)
