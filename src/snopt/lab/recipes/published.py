"""Optimizer settings by task: for the paper's data sets, and for the three small ones.

The learning rates, weight decays, damping and refresh intervals of Adam, SGD and SNOpt are those of
the authors' published run scripts; ``table:hyper`` of the paper lists the grid they come from. The
momentum of SGD is 0.9, as in the paper (the scripts omit it for series). No script covers circle:
its learning rates are from the middle of the grid.

The paper's SNOpt is ``snopt_amortized`` here: Algorithm 2, factors from 100 times along a solve,
replaced every 100 or 250 iterations.

The paper does not contain the other optimizers, which train all parameters. Their learning rates
worked on MNIST and digits (docs/optimizer.md); tune them with ``snopt sweep`` before comparing. The
registry of optimizers holds those of the small data sets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers import find


def _adam(lr: float, weight_decay: float = 0.0, **settings: Any) -> OptimizerConfig:
    return OptimizerConfig("adam", lr, weight_decay, **settings)


def _sgd(lr: float, **settings: Any) -> OptimizerConfig:
    return OptimizerConfig("sgd", lr, momentum=0.9, **settings)


def _snopt(
    lr: float,
    damping: float,
    *,
    momentum: float = 0.0,
    every: int = 100,
    rest_lr: float | None = None,
    **settings: Any,
) -> OptimizerConfig:
    """Algorithm 2. Series are solved one unit of time per call, with one node each."""
    return OptimizerConfig(
        "snopt_amortized",
        lr,
        momentum=momentum,
        damping=damping,
        refresh_every=every,
        refresh_first=every,
        nodes=100 if rest_lr is None else 1,
        rest_lr=rest_lr,
        **settings,
    )


PUBLISHED: dict[str, tuple[OptimizerConfig, ...]] = {
    "mnist": (_adam(1e-3), _sgd(0.02), _snopt(0.02, 0.05)),
    "svhn": (_adam(5e-4, 1e-3), _sgd(0.02), _snopt(0.01, 0.05, weight_decay=1e-4)),
    "cifar10": (_adam(1e-3, 1e-3), _sgd(0.01), _snopt(0.01, 0.03)),
    # On series, SGD and SNOpt train the vector field, and Adam the cell and the read-out.
    "spoken_arabic_digits": (
        _adam(3e-3),
        _sgd(0.01, rest_lr=3e-3),
        _snopt(5e-3, 0.05, rest_lr=3e-3),
    ),
    "articulary_word_recognition": (
        _adam(1e-3, gamma=0.5, milestones=(200, 375, 550)),
        _sgd(3e-3, rest_lr=1e-3),
        _snopt(3e-3, 0.1, rest_lr=3e-3),
    ),
    "character_trajectories": (
        _adam(1e-3, gamma=0.5, milestones=(300, 600, 900)),
        _sgd(1e-3, rest_lr=1e-3, gamma=0.7, milestones=(300, 600, 900)),
        _snopt(3e-3, 0.05, weight_decay=1e-4, rest_lr=3e-3, gamma=0.7, milestones=(450, 750, 900)),
    ),
    "circle": (_adam(1e-3), _sgd(0.01), _snopt(0.01, 0.05, momentum=0.9)),
    "gas": (_adam(2e-3), _sgd(0.01), _snopt(0.01, 0.05, momentum=0.9, every=250)),
    "miniboone": (_adam(3e-3), _sgd(0.01), _snopt(5e-3, 0.1, momentum=0.9, every=250)),
}
"""By data set: Adam, SGD, SNOpt."""

SGD_IN_THE_PLANE = 0.05
"""The flows of two_moons and spirals become stiff at the learning rate that suits digits."""


def optimizer_for(task: str, name: str) -> OptimizerConfig:
    """Return the settings of an optimizer for a task.

    Example:
        >>> optimizer_for("gas", "snopt_amortized").damping
        0.05
        >>> adamw = optimizer_for("mnist", "adamw")
        >>> adamw.lr, adamw.weight_decay  # Adam's learning rate
        (0.001, 0.01)
    """
    published = {config.name: config for config in PUBLISHED.get(task, ())}
    if name in published:
        return published[name]
    entry = find(name)
    if not published:
        lr = SGD_IN_THE_PLANE if name == "sgd" and task != "digits" else entry.small_lr
        return OptimizerConfig(name, lr, entry.weight_decay)
    if name == "adamw":
        return replace(published["adam"], name=name, weight_decay=entry.weight_decay)
    # The recursive adjoint replaces SNOpt in the vector field.
    rest_lr = published["snopt_amortized"].rest_lr if name == "recursive" else None
    return OptimizerConfig(name, entry.lr, entry.weight_decay, rest_lr=rest_lr)
