"""What a run is: one frozen description, made of small ones.

A recipe returns an :class:`Experiment`; :func:`snopt.lab.recipes.build.build` turns it into a task
and the parts to train. Everything here can be written to JSON and read back, so that a run folder
says how to repeat the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from snopt.lab.train import TrainConfig

__all__ = [
    "DataConfig",
    "Experiment",
    "HorizonConfig",
    "HorizonPolicy",
    "ModelConfig",
    "OptimizerConfig",
    "OptimizerName",
    "Scale",
    "SolverConfig",
    "TaskName",
]

TaskName: TypeAlias = Literal[
    "mnist",
    "svhn",
    "cifar10",
    "spoken_arabic_digits",
    "articulary_word_recognition",
    "character_trajectories",
    "circle",
    "gas",
    "miniboone",
    "two_moons",
    "spirals",
    "digits",
]
OptimizerName: TypeAlias = str  # a key of snopt.lab.optimizers.OPTIMIZERS
Scale: TypeAlias = Literal["smoke", "cpu", "full"]
ModelKind: TypeAlias = Literal["image", "residual", "series", "density", "flow"]
HorizonPolicy: TypeAlias = Literal["fixed", "feedback", "newton", "gradient"]


def _at_least(config: object, **bounds: int) -> None:
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ValueError(f"{name} is {value}; it must be at least {bound}.")


@dataclass(frozen=True)
class DataConfig:
    """Which data, and how much of it.

    Attributes:
        name: a data set that :func:`snopt.lab.data.load` knows.
        preprocessing: ``"standard"``, or ``"paper"`` for what the authors' programs did.
        hold_out: whether the validation part is kept out of training. If not, all of it is trained
            on, and runs are evaluated on the test part instead, as the authors' programs do:
            choose nothing by such an evaluation.
        examples: use at most so many examples of each split; all if not given.
        valid_examples: use at most so many for validation; all if not given.
        test_examples: use at most so many for the test at the end, none if 0; all if not given.
    """

    name: str
    preprocessing: Literal["standard", "paper"] = "standard"
    hold_out: bool = True
    examples: int | None = None
    valid_examples: int | None = None
    test_examples: int | None = None

    def __post_init__(self) -> None:
        _at_least(self, examples=1, valid_examples=1, test_examples=0)


@dataclass(frozen=True)
class ModelConfig:
    """Which model; a field that a kind has no use for is ignored.

    Attributes:
        kind: ``"image"`` (convolutions around an ODE block), ``"residual"`` (its discrete
            counterpart), ``"series"`` (ODE-RNN), ``"density"`` (continuous normalizing flow) or
            ``"flow"`` (an ODE block on the inputs themselves, and a linear read-out).
        width: channels or hidden units.
        layers: hidden layers of the field of ``"density"`` and ``"flow"``.
        activation: of the field of ``"density"``.
        stacks: ODE blocks in sequence, of ``"density"``.
        divergence: how ``"density"`` computes the divergence.
        hypernetwork: whether a network of time makes the weights of ``"density"``.
        kinetic: weight of the kinetic energy in the loss of ``"density"``.
        jacobian: weight of the Jacobian's norm in the loss of ``"density"``.
        base_variance: variance of the normal that data of ``"density"`` flow to.
    """

    kind: ModelKind
    width: int = 64
    layers: int = 2
    activation: Literal["tanh", "softplus"] = "tanh"
    stacks: int = 1
    divergence: Literal["exact", "rademacher", "gaussian"] = "exact"
    hypernetwork: bool = False
    kinetic: float = 0.0
    jacobian: float = 0.0
    base_variance: float = 1.0

    def __post_init__(self) -> None:
        _at_least(self, width=1, layers=0, stacks=1)


@dataclass(frozen=True)
class SolverConfig:
    """How the ODE is solved and differentiated; see :class:`snopt.NeuralODE`.

    Attributes:
        method: the solver.
        rtol: relative tolerance.
        atol: absolute tolerance.
        step_size: step of a method with fixed steps; without one it steps over a whole solve.
        adjoint: how gradients are made.
        horizon: end of the integration, t1.
        compile: compile whole steps.
    """

    method: str | None = None
    rtol: float = 1e-3
    atol: float = 1e-3
    adjoint: str = "checkpoint"
    horizon: float = 1.0
    compile: bool = False
    step_size: float | None = None


@dataclass(frozen=True)
class OptimizerConfig:
    """Which optimizer, and its settings; None is the optimizer's default.

    :func:`snopt.lab.optimizers.make_optimizers` refuses settings that the optimizer does not have.

    Attributes:
        name: a key of :data:`snopt.lab.optimizers.OPTIMIZERS`.
        lr: learning rate.
        weight_decay: weight decay.
        momentum: of ``sgd``, ``muon``, ``singd`` and ``snopt``.
        damping: Tikhonov regularisation ε of ``snopt``; of ``singd``; that ``recursive`` begins
            with.
        refresh_every: longest interval between refreshes of ``snopt``, in iterations.
        refresh_first: the first one.
        nodes: evaluate curvature at so many times evenly along a solve; two a step if not given.
        conv: how ``snopt`` factors convolutions.
        rest_lr: if given, only vector fields are trained by this optimizer, and everything else
            (recurrent cells, read-outs) by Adam at this rate, as the paper does for series.
        milestones: iterations at which the learning rates are multiplied by ``gamma``.
        gamma: see there.
        cosine: iterations in which the learning rates fall to zero along half a cosine; constant
            if not given.
        options: further arguments of the optimizer's constructor, by name; see
            :func:`snopt.lab.optimizers.options`.
    """

    name: OptimizerName
    lr: float
    weight_decay: float = 0.0
    momentum: float | None = None
    damping: float | None = None
    refresh_every: int = 100
    refresh_first: int = 5
    nodes: int | None = None
    conv: Literal["per_axis", "kfc"] = "kfc"
    rest_lr: float | None = None
    milestones: tuple[int, ...] = ()
    gamma: float = 1.0
    cosine: int | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class HorizonConfig:
    """Whether the horizon t1 is learned too; see :class:`snopt.HorizonOptimizer`.

    Attributes:
        policy: ``"fixed"``, or how it is learned.
        lr: step size of the horizon.
        penalty: weight of a quadratic penalty on long horizons.
        every: iterations between two updates of the horizon.
    """

    policy: HorizonPolicy = "fixed"
    lr: float = 0.1
    penalty: float = 0.0768
    every: int = 50


@dataclass(frozen=True)
class Experiment:
    """Everything about a run but its folder.

    Attributes:
        task: the recipe's name.
        scale: the recipe's scale.
        data: which data.
        model: which model.
        solver: how its ODE is solved.
        optimizer: what trains it.
        train: how long, in which batches, when to evaluate.
        horizon: whether the horizon is learned too.
    """

    task: str
    scale: Scale
    data: DataConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    train: TrainConfig
    solver: SolverConfig = field(default_factory=SolverConfig)
    horizon: HorizonConfig = field(default_factory=HorizonConfig)

    @property
    def metric(self) -> str:
        """What the task is judged by: ``"nll"`` of densities, ``"accuracy"`` of all others."""
        return "nll" if self.model.kind == "density" else "accuracy"

    @property
    def mode(self) -> Literal["max", "min"]:
        """Whether more or less of :attr:`metric` is better."""
        return "min" if self.model.kind == "density" else "max"
