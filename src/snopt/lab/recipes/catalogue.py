"""Recipes: by data set, what returns a frozen configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import get_args

from snopt.base.errors import unknown
from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.recipes.embedded import digits, spirals, two_moons
from snopt.lab.recipes.setups import SETUPS, setup

__all__ = ["RECIPES", "recipe"]

RECIPES: dict[str, Callable[[OptimizerName, Scale], Experiment]] = {
    **{task: partial(setup, task) for task in SETUPS},
    **{make.__name__: make for make in (two_moons, spirals, digits)},
}
"""Recipes by the name of their task."""


def recipe(task: str, optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Return the configuration of a task.

    Args:
        task: one of ``RECIPES``.
        optimizer: what trains it.
        scale: ``"full"`` is the paper's own set-up, ``"cpu"`` what two cores do in minutes,
            ``"smoke"`` a few updates to see that it runs.

    Example:
        >>> recipe("cifar10", "adam", "full").optimizer.weight_decay
        0.001
        >>> recipe("cifar")
        Traceback (most recent call last):
        ...
        snopt.base.errors.UnknownName: unknown task 'cifar'; did you mean 'cifar10'? Valid ...
    """
    if task not in RECIPES:
        raise unknown("task", task, RECIPES)
    if scale not in get_args(Scale):
        raise unknown("scale", scale, get_args(Scale))
    return RECIPES[task](optimizer, scale)
