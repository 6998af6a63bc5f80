"""Small tasks that need no download: flows with a linear read-out, and an ODE-RNN.

How the learning rates were chosen is told in docs/cli.md.
"""

from __future__ import annotations

from snopt.lab.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerConfig,
    OptimizerName,
    Scale,
)
from snopt.lab.optimizers import find
from snopt.lab.recipes.setups import smoke
from snopt.lab.train import TrainConfig

__all__ = ["digits", "spirals", "two_moons"]

SGD_IN_THE_PLANE = 0.05
"""The flows of the other two tasks become stiff at the rate that suits digits."""


def digits(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Hand-written digits, 8 x 8 grey: a flow of 64 dimensions."""
    train = TrainConfig(iterations=100, batch_size=128, evaluate_every=5)
    return _embedded("digits", optimizer, scale, ModelConfig("flow", width=64, layers=2), train)


def two_moons(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Two interleaved half circles: a flow in the plane."""
    train = TrainConfig(iterations=100, batch_size=256, evaluate_every=10)
    return _embedded("two_moons", optimizer, scale, ModelConfig("flow", width=64, layers=2), train)


def spirals(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Noisy plane spirals, left or right, growing or shrinking: an ODE-RNN."""
    train = TrainConfig(iterations=100, batch_size=128, evaluate_every=10)
    return _embedded("spirals", optimizer, scale, ModelConfig("series", width=16), train)


def _embedded(
    name: str, optimizer: OptimizerName, scale: Scale, model: ModelConfig, train: TrainConfig
) -> Experiment:
    entry = find(optimizer)
    plane = name != "digits" and optimizer == "sgd"
    lr = SGD_IN_THE_PLANE if plane else entry.small_lr
    config = Experiment(
        task=name,
        scale=scale,
        data=DataConfig(name),
        model=model,
        optimizer=OptimizerConfig(optimizer, lr, weight_decay=entry.weight_decay),
        train=train,
    )
    return smoke(config) if scale == "smoke" else config
