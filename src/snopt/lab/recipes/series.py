"""Series of the UEA archive: an ODE-RNN of 32 or 64 hidden units, four linear layers in its field.

dopri5 at tolerance 1e-3 from each observation to the next; batches of 128, 256 and 512. The
recurrent cell and the read-out are trained by Adam whatever trains the field. The learning rates
fall at published iterations.
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

__all__ = ["articulary_word_recognition", "character_trajectories", "spoken_arabic_digits"]


def spoken_arabic_digits(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """SpokenArabicDigits: speech, ten epochs."""
    train = TrainConfig(epochs=10, batch_size=128)
    full = _series("spoken_arabic_digits", optimizer, width=32, train=train)
    return _at(full, scale, iterations=300, of=480)


def articulary_word_recognition(
    optimizer: OptimizerName = "snopt", scale: Scale = "cpu"
) -> Experiment:
    """ArticularyWordRecognition: movements of the tongue and lips, 600 epochs."""
    train = TrainConfig(epochs=600, batch_size=256, evaluate_every=10)
    full = _series("articulary_word_recognition", optimizer, width=64, train=train)
    return _at(full, scale, iterations=300, of=600)


def character_trajectories(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """CharacterTrajectories: movements of a pen, 400 epochs."""
    train = TrainConfig(epochs=400, batch_size=512, evaluate_every=10)
    full = _series("character_trajectories", optimizer, width=32, train=train)
    return _at(full, scale, iterations=300, of=1200)


def _series(name: str, optimizer: OptimizerName, *, width: int, train: TrainConfig) -> Experiment:
    return Experiment(
        task=name,
        scale="full",
        data=DataConfig(name, preprocessing="paper"),
        model=ModelConfig("series", width=width),
        optimizer=optimizer_for(name, optimizer),
        train=train,
    )


def _at(full: Experiment, scale: Scale, *, iterations: int, of: int) -> Experiment:
    if scale == "cpu":
        return shortened(full, "cpu", iterations=iterations, evaluate_every=iterations // 6, of=of)
    return smoke(full) if scale == "smoke" else full
