"""Recipes: each task with its model, solver and length of training, at three scales.

The paper's nine data sets. Images: three convolutions, an ODE block of two, a linear read-out.
Series: an ODE-RNN whose field has four linear layers; Adam always trains the cell and the read-out.
Densities: continuous normalizing flows. Circle is the example of Chen et al.: a network of time
produces the weights of its field, its divergence is exact, its base density is N(0, 0.1 I). The
other two estimate the divergence with random signs as FFJORD does; their base density is N(0, I).

Three small tasks need no download: flows with a linear read-out, and an ODE-RNN. docs/training.md
says how their learning rates were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import get_args

from snopt.base.errors import unknown
from snopt.lab.config import (
    DataConfig,
    Experiment,
    ModelConfig,
    OptimizerName,
    Scale,
    SolverConfig,
)
from snopt.lab.recipes.published import optimizer_for
from snopt.lab.train import TrainConfig


@dataclass(frozen=True)
class Cut:
    """A shorter experiment with a smaller model; None is the same as in the full experiment.

    Attributes:
        iterations: updates to make.
        evaluations: how often to evaluate.
        of: updates of the full experiment, which its learning-rate schedule refers to.
        width: width of the model.
        stacks: number of its blocks.
        batch_size: examples per update.
    """

    iterations: int = 300
    evaluations: int = 6
    of: int = 1
    width: int | None = None
    stacks: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Setup:
    """A task at scale ``full``.

    Attributes:
        cut: scale ``cpu``; None if that is the same.
        epochs: length of training by optimizer, where it differs.
    """

    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    cut: Cut | None = None
    solver: SolverConfig = field(default_factory=SolverConfig)
    epochs: Mapping[OptimizerName, int] = field(default_factory=dict)


def _image(name: str, epochs: int, iterations: int) -> Setup:
    return Setup(
        DataConfig(name, hold_out=False),
        ModelConfig("image", width=64),
        TrainConfig(epochs=epochs, batch_size=128),
        Cut(iterations, evaluations=5, width=32),
    )


def _series(name: str, width: int, train: TrainConfig, of: int) -> Setup:
    model = ModelConfig("series", width=width)
    return Setup(DataConfig(name, preprocessing="paper"), model, train, Cut(of=of))


def _small(name: str, model: ModelConfig, batch_size: int, evaluate_every: int) -> Setup:
    train = TrainConfig(iterations=100, batch_size=batch_size, evaluate_every=evaluate_every)
    return Setup(DataConfig(name), model, train)


_FINE = SolverConfig(rtol=1e-6, atol=1e-6)
_FLOW = ModelConfig("flow", width=64, layers=2)

SETUPS: dict[str, Setup] = {
    "mnist": _image("mnist", 5, iterations=500),
    "svhn": _image("svhn", 10, iterations=200),
    "cifar10": _image("cifar10", 20, iterations=800),
    "spoken_arabic_digits": _series(
        "spoken_arabic_digits", 32, TrainConfig(epochs=10, batch_size=128), of=480
    ),
    "articulary_word_recognition": _series(
        "articulary_word_recognition",
        64,
        TrainConfig(epochs=600, batch_size=256, evaluate_every=10),
        of=600,
    ),
    "character_trajectories": _series(
        "character_trajectories",
        32,
        TrainConfig(epochs=400, batch_size=512, evaluate_every=10),
        of=1200,
    ),
    "circle": Setup(
        DataConfig("circle"),
        ModelConfig("density", width=64, layers=1, hypernetwork=True, base_variance=0.1),
        TrainConfig(iterations=1000, batch_size=128, evaluate_every=100),
        Cut(),
        replace(_FINE, horizon=10.0),
    ),
    "gas": Setup(
        DataConfig("gas", preprocessing="paper"),
        ModelConfig("density", width=160, layers=3, stacks=5, divergence="rademacher"),
        TrainConfig(epochs=30, batch_size=1000, evaluate_every=500),
        Cut(width=64, stacks=2),
        _FINE,
        {"snopt_amortized": 20},
    ),
    "miniboone": Setup(
        DataConfig("miniboone", preprocessing="paper"),
        ModelConfig("density", width=860, layers=2, activation="softplus", divergence="rademacher"),
        TrainConfig(epochs=20, batch_size=128, evaluate_every=200),
        Cut(),
        _FINE,
        {"snopt_amortized": 10, "sgd": 25},
    ),
    "two_moons": _small("two_moons", _FLOW, batch_size=256, evaluate_every=10),
    "spirals": _small("spirals", ModelConfig("series", width=16), 128, evaluate_every=10),
    "digits": _small("digits", _FLOW, batch_size=128, evaluate_every=5),
}


def recipe(task: str, optimizer: OptimizerName = "snopt", scale: Scale = "cpu") -> Experiment:
    """Return the configuration of a task.

    Args:
        task: one of ``RECIPES``.
        optimizer: what trains it.
        scale: ``"full"`` is the paper's set-up, ``"cpu"`` takes minutes on two cores, ``"smoke"``
            is a few updates to see that it runs.

    Example:
        >>> recipe("cifar10", "adam", "full").optimizer.weight_decay
        0.001
        >>> recipe("cifar")
        Traceback (most recent call last):
        ...
        snopt.base.errors.UnknownName: unknown task 'cifar'; did you mean 'cifar10'? Valid ...
    """
    if task not in SETUPS:
        raise unknown("task", task, SETUPS)
    if scale not in get_args(Scale):
        raise unknown("scale", scale, get_args(Scale))
    setup = SETUPS[task]
    epochs = setup.epochs.get(optimizer, setup.train.epochs)
    full = Experiment(
        task=task,
        scale=scale,
        data=setup.data,
        model=setup.model,
        solver=setup.solver,
        optimizer=optimizer_for(task, optimizer),
        train=replace(setup.train, epochs=epochs),
    )
    if scale == "smoke":
        return _smoke(full)
    return full if scale == "full" or setup.cut is None else shortened(full, setup.cut)


def _smoke(full: Experiment) -> Experiment:
    """Shrink an experiment until it takes seconds: same kind of model, a few updates."""
    return replace(
        full,
        data=replace(full.data, examples=48, hold_out=True),
        model=replace(full.model, width=min(full.model.width, 8), stacks=min(full.model.stacks, 2)),
        solver=replace(full.solver, rtol=1e-2, atol=1e-2),
        train=replace(full.train, iterations=3, epochs=None, batch_size=16, evaluate_every=3),
    )


def shortened(full: Experiment, cut: Cut) -> Experiment:
    """Cut an experiment to fewer iterations, its learning-rate schedule in proportion."""
    model, train, length = full.model, full.train, cut.iterations
    milestones = tuple(round(m * length / cut.of) for m in full.optimizer.milestones)
    return replace(
        full,
        data=replace(full.data, hold_out=True),
        model=replace(model, width=cut.width or model.width, stacks=cut.stacks or model.stacks),
        optimizer=replace(full.optimizer, milestones=milestones),
        train=replace(
            train,
            iterations=length,
            epochs=None,
            batch_size=cut.batch_size or train.batch_size,
            evaluate_every=max(length // cut.evaluations, 1),
        ),
    )


RECIPES: dict[str, Callable[[OptimizerName, Scale], Experiment]] = {
    task: partial(recipe, task) for task in SETUPS
}
"""Recipes by the name of their task."""
