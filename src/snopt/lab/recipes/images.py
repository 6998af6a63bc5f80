"""MNIST, SVHN and CIFAR-10: three convolutions, an ODE block of two, a linear read-out.

All training examples in batches of 128; dopri5 at tolerance 1e-3 over [0, 1]; five, ten and twenty
epochs. At scale ``cpu`` the model has 32 channels instead of 64, and a tenth of the training
examples is held out for validation.
"""

from __future__ import annotations

from snopt.lab.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerName,
    Scale,
)
from snopt.lab.recipes.published import optimizer_for
from snopt.lab.recipes.scales import shortened, smoke
from snopt.lab.train import TrainConfig

__all__ = ["cifar10", "mnist", "svhn"]


def mnist(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """MNIST, 28 x 28 grey."""
    return _images("mnist", optimizer, scale, epochs=5, of=2340, iterations=500)


def svhn(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """SVHN's cropped digits, 32 x 32 in colour."""
    return _images("svhn", optimizer, scale, epochs=10, of=5720, iterations=200)


def cifar10(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """CIFAR-10, 32 x 32 in colour."""
    return _images("cifar10", optimizer, scale, epochs=20, of=7800, iterations=800)


def _images(
    name: str, optimizer: OptimizerName, scale: Scale, *, epochs: int, of: int, iterations: int
) -> Experiment:
    full = Experiment(
        task=name,
        scale="full",
        data=DataConfig(name, hold_out=False),
        model=ModelConfig("image", width=64),
        optimizer=optimizer_for(name, optimizer),
        train=TrainConfig(epochs=epochs, batch_size=128),
    )
    if scale == "cpu":
        return shortened(
            full, "cpu", iterations=iterations, evaluate_every=iterations // 5, of=of, width=32
        )
    return smoke(full) if scale == "smoke" else full
