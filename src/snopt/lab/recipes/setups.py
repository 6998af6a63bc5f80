"""The paper's nine data sets, each with its model, solver and length of training.

Images: three convolutions, an ODE block of two, a linear read-out. Series: an ODE-RNN whose field
has four linear layers; cell and read-out are trained by Adam whatever trains the field. Densities:
continuous normalizing flows. Circle is the example of Chen et al.: its field has its weights from a
network of time, its divergence is exact, its base density is N(0, 0.1 I). The other two estimate
the divergence with random signs, as FFJORD does, and flow to the standard normal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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

__all__ = ["SETUPS", "setup", "smoke"]


@dataclass(frozen=True)
class Cut:
    """What scale ``cpu`` makes of an experiment.

    Attributes:
        iterations: updates to make.
        evaluations: how often to evaluate.
        of: updates that the whole experiment makes, to which its schedule belongs.
        width: of the model, if it is to be narrower.
        stacks: of the model, if there are to be fewer.
    """

    iterations: int = 300
    evaluations: int = 6
    of: int = 1
    width: int | None = None
    stacks: int | None = None


@dataclass(frozen=True)
class Setup:
    """One of the paper's data sets at scale ``full``.

    Attributes:
        data: which data.
        model: which model.
        train: how long, in which batches.
        solver: how the ODE is solved.
        cut: scale ``cpu``.
        epochs: how long by optimizer, where it is not the same for all.
    """

    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    cut: Cut
    solver: SolverConfig = field(default_factory=SolverConfig)
    epochs: tuple[tuple[OptimizerName, int], ...] = ()


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


_FINE = SolverConfig(rtol=1e-6, atol=1e-6)

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
        (("snopt_amortized", 20),),
    ),
    "miniboone": Setup(
        DataConfig("miniboone", preprocessing="paper"),
        ModelConfig("density", width=860, layers=2, activation="softplus", divergence="rademacher"),
        TrainConfig(epochs=20, batch_size=128, evaluate_every=200),
        Cut(),
        _FINE,
        (("snopt_amortized", 10), ("sgd", 25)),
    ),
}
"""By name of the data set."""


def setup(task: str, optimizer: OptimizerName, scale: Scale) -> Experiment:
    """Return one of the paper's data sets at a scale.

    Args:
        task: one of ``SETUPS``.
        optimizer: what trains it.
        scale: the scale.
    """
    full = SETUPS[task]
    length = dict(full.epochs).get(optimizer, full.train.epochs)
    config = Experiment(
        task=task,
        scale="full",
        data=full.data,
        model=full.model,
        solver=full.solver,
        optimizer=optimizer_for(task, optimizer),
        train=replace(full.train, epochs=length),
    )
    if scale == "full":
        return config
    return smoke(config) if scale == "smoke" else _shortened(config, full.cut)


def smoke(full: Experiment) -> Experiment:
    """Shrink an experiment until it takes seconds: same kind of model, a handful of updates."""
    return replace(
        full,
        scale="smoke",
        data=replace(full.data, examples=48, hold_out=True),
        model=replace(full.model, width=min(full.model.width, 8), stacks=min(full.model.stacks, 2)),
        solver=replace(full.solver, rtol=1e-2, atol=1e-2),
        train=replace(full.train, iterations=3, epochs=None, batch_size=16, evaluate_every=3),
    )


def _shortened(full: Experiment, cut: Cut) -> Experiment:
    """Cut an experiment to so many iterations, its learning-rate schedule in proportion."""
    model, length = full.model, cut.iterations
    milestones = tuple(round(m * length / cut.of) for m in full.optimizer.milestones)
    return replace(
        full,
        scale="cpu",
        data=replace(full.data, hold_out=True),
        model=replace(model, width=cut.width or model.width, stacks=cut.stacks or model.stacks),
        optimizer=replace(full.optimizer, milestones=milestones),
        train=replace(
            full.train,
            iterations=length,
            epochs=None,
            evaluate_every=length // cut.evaluations,
        ),
    )
