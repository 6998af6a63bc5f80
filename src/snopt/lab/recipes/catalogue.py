"""Recipes: one function a data set, which returns a frozen configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from snopt.base.errors import unknown
from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.recipes.density import circle, gas, miniboone
from snopt.lab.recipes.embedded import digits, spirals, two_moons
from snopt.lab.recipes.images import cifar10, mnist, svhn
from snopt.lab.recipes.series import (
    articulary_word_recognition,
    character_trajectories,
    spoken_arabic_digits,
)

__all__ = ["RECIPES", "recipe"]

RECIPES: dict[str, Callable[[OptimizerName, Scale], Experiment]] = {
    make.__name__: make
    for make in (
        mnist,
        svhn,
        cifar10,
        spoken_arabic_digits,
        articulary_word_recognition,
        character_trajectories,
        circle,
        gas,
        miniboone,
        two_moons,
        spirals,
        digits,
    )
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
