"""Densities by continuous normalizing flows: Circle, Gas, Miniboone.

dopri5 at tolerance 1e-6 over [0, 1], Circle over [0, 10]. Gas stacks five blocks, and batches 1000
rows, the others 128. Circle is the example of Chen et al.: its field has its weights from a
network of time, its divergence is exact, its base density is N(0, 0.1 I). The other two estimate
the divergence with random signs, as FFJORD does, and flow to the standard normal.
"""

from __future__ import annotations

from dataclasses import replace

from snopt.lab.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerName,
    Scale,
    SolverConfig,
)
from snopt.lab.recipes.published import optimizer_for
from snopt.lab.recipes.scales import shortened, smoke
from snopt.lab.train import TrainConfig

__all__ = ["circle", "gas", "miniboone"]

TOLERANCE = SolverConfig(rtol=1e-6, atol=1e-6)


def circle(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Two concentric circles in the plane."""
    full = Experiment(
        task="circle",
        scale="full",
        data=DataConfig("circle"),
        model=ModelConfig("density", width=64, layers=1, hypernetwork=True, base_variance=0.1),
        solver=replace(TOLERANCE, horizon=10.0),
        optimizer=optimizer_for("circle", optimizer),
        train=TrainConfig(iterations=1000, batch_size=128, evaluate_every=100),
    )
    return _at(full, scale, iterations=300, of=1000)


def gas(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Gas sensors, eight columns; at scale ``cpu`` two blocks of width 64."""
    full = Experiment(
        task="gas",
        scale="full",
        data=DataConfig("gas", preprocessing="paper"),
        model=ModelConfig("density", width=160, layers=3, stacks=5, divergence="rademacher"),
        solver=TOLERANCE,
        optimizer=optimizer_for("gas", optimizer),
        train=TrainConfig(
            epochs=20 if optimizer == "snopt_amortized" else 30,
            batch_size=1000,
            evaluate_every=500,
        ),
    )
    return _at(full, scale, iterations=300, of=2550, width=64, stacks=2)


def miniboone(optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Particle physics, 43 columns."""
    epochs = {"snopt_amortized": 10, "sgd": 25}.get(optimizer, 20)
    full = Experiment(
        task="miniboone",
        scale="full",
        data=DataConfig("miniboone", preprocessing="paper"),
        model=ModelConfig(
            "density", width=860, layers=2, activation="softplus", divergence="rademacher"
        ),
        solver=TOLERANCE,
        optimizer=optimizer_for("miniboone", optimizer),
        train=TrainConfig(epochs=epochs, batch_size=128, evaluate_every=200),
    )
    return _at(full, scale, iterations=300, of=4600)


def _at(
    full: Experiment,
    scale: Scale,
    *,
    iterations: int,
    of: int,
    width: int | None = None,
    stacks: int | None = None,
) -> Experiment:
    if scale == "cpu":
        every = iterations // 6
        return shortened(
            full, "cpu", iterations=iterations, evaluate_every=every, of=of, width=width,
            stacks=stacks,
        )  # fmt: skip
    return smoke(full) if scale == "smoke" else full
