"""The configuration of a run: frozen dataclasses that can be written to JSON and read back.

A recipe returns an :class:`Experiment`; :func:`snopt.lab.recipes.build.build` turns it into a task
and the parts to train.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from snopt.lab.train import TrainConfig
from snopt.lab.train.task import at_least

TaskName: TypeAlias = Literal[
    "mnist", "svhn", "cifar10",
    "spoken_arabic_digits", "articulary_word_recognition", "character_trajectories",
    "circle", "gas", "miniboone",
    "two_moons", "spirals", "digits",
]  # fmt: skip
OptimizerName: TypeAlias = str  # a key of snopt.lab.optimizers.OPTIMIZERS
Scale: TypeAlias = Literal["smoke", "cpu", "full"]
ModelKind: TypeAlias = Literal["image", "residual", "series", "density", "flow"]
HorizonPolicy: TypeAlias = Literal["fixed", "feedback", "newton", "gradient"]


@dataclass(frozen=True)
class DataConfig:
    """The data set, and how many of its examples to use.

    Attributes:
        name: name of a data set for :func:`snopt.lab.data.load`.
        preprocessing: ``"standard"``, or ``"paper"`` for that of the authors' code.
        hold_out: keep the validation split out of training. Without it, runs train on the
            validation split too and are evaluated on the test split, as in the authors' code; do
            not tune anything by such an evaluation.
        examples: largest number of examples per split; default all.
        valid_examples: largest number of validation examples; default all.
        test_examples: largest number of test examples, 0 for no test; default all.
    """

    name: str
    preprocessing: Literal["standard", "paper"] = "standard"
    hold_out: bool = True
    examples: int | None = None
    valid_examples: int | None = None
    test_examples: int | None = None

    def __post_init__(self) -> None:
        at_least(self, examples=1, valid_examples=1, test_examples=0)


@dataclass(frozen=True)
class ModelConfig:
    """The model. A setting that does not apply to the kind is ignored.

    Attributes:
        kind: ``"image"`` (convolutions around an ODE block), ``"residual"`` (its discrete
            counterpart), ``"series"`` (ODE-RNN), ``"density"`` (continuous normalizing flow) or
            ``"flow"`` (an ODE block on the inputs and a linear read-out).
        width: channels or hidden units.
        layers: hidden layers of the field of ``"density"`` and ``"flow"``.
        activation: activation of the field (``"density"``).
        stacks: number of ODE blocks in sequence (``"density"``).
        divergence: how the divergence is computed (``"density"``).
        hypernetwork: a network of time produces the weights of the field (``"density"``).
        kinetic: weight of the kinetic energy in the loss (``"density"``).
        jacobian: weight of the Jacobian's norm in the loss (``"density"``).
        base_variance: variance of the normal base density (``"density"``).
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
        at_least(self, width=1, layers=0, stacks=1, kinetic=0, jacobian=0)


@dataclass(frozen=True)
class SolverConfig:
    """How the ODE is solved and differentiated; see :class:`snopt.NeuralODE`.

    Attributes:
        method: the solver; None for the default.
        adjoint: how gradients are computed.
        horizon: end of the integration, t1.
        compile: compile whole steps.
        step_size: step size of a fixed-step method; default one step per solve.
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
    """The optimizer and its settings; None is the optimizer's default.

    :func:`snopt.lab.optimizers.make_optimizers` raises an error for settings that the optimizer
    does not have.

    Attributes:
        name: a key of :data:`snopt.lab.optimizers.OPTIMIZERS`.
        momentum: momentum of ``sgd``, ``muon``, ``singd`` and ``snopt``.
        damping: damping ε of ``snopt`` and ``singd``; initial damping of ``recursive``.
        refresh_every: longest interval between refreshes of ``snopt``, in iterations.
        refresh_first: the first interval.
        nodes: number of equidistant times per solve at which ``snopt`` evaluates curvature; default
            two per step.
        conv: how ``snopt`` factors convolutions.
        rest_lr: if given, this optimizer trains the vector fields only, and Adam with this learning
            rate trains everything else (recurrent cells, read-outs), as in the paper for series.
        milestones: iterations at which the learning rates are multiplied by ``gamma``.
        gamma: factor at each milestone.
        cosine: iterations over which the learning rates decay to zero along half a cosine; default
            no decay.
        options: further arguments of the optimizer's constructor, by name; see
            :func:`snopt.lab.optimizers.options`.
    """

    name: OptimizerName
    lr: float
    weight_decay: float = 0.0
    momentum: float | None = None
    damping: float | None = None
    refresh_every: int | None = None
    refresh_first: int | None = None
    nodes: int | None = None
    conv: Literal["per_axis", "kfc"] | None = None
    rest_lr: float | None = None
    milestones: tuple[int, ...] = ()
    gamma: float = 1.0
    cosine: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        at_least(self, nodes=1, refresh_every=1, refresh_first=1, cosine=1, gamma=0)


@dataclass(frozen=True)
class HorizonConfig:
    """Whether the horizon t1 is learned; see :class:`snopt.HorizonOptimizer`.

    Attributes:
        policy: ``"fixed"``, or how it is learned.
        lr: learning rate of the horizon.
        penalty: weight of a quadratic penalty on long horizons.
        every: iterations between two updates of the horizon.
    """

    policy: HorizonPolicy = "fixed"
    lr: float = 0.1
    penalty: float = 0.0768
    every: int = 50


@dataclass(frozen=True)
class Experiment:
    """Everything about a run except its folder.

    Attributes:
        task: name of the recipe.
        scale: scale of the recipe.
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
        """The metric of the task: ``"nll"`` for densities, else ``"accuracy"``."""
        return "nll" if self.model.kind == "density" else "accuracy"

    @property
    def mode(self) -> Literal["max", "min"]:
        """Whether larger or smaller values of :attr:`metric` are better."""
        return "min" if self.model.kind == "density" else "max"
