"""The registry of optimizers: one entry adds an optimizer to recipes, sweeps, reports and flags.

The learning rates are the paper's grid (``table:hyper``) for Adam, SGD and ``snopt_amortized``.
Optimizers beyond the paper use Adam's rates if their steps scale like Adam's, and SGD's otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR

from snopt.adjoint import UniformGrid
from snopt.adjoint.blocks import blocks_of
from snopt.base.errors import unknown
from snopt.kronecker import KroneckerOptions
from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers.recursive import recursive_adjoint
from snopt.lab.optimizers.recursive_newton import RecursiveNewton
from snopt.lab.optimizers.singd import StageSINGD, supported
from snopt.lab.optimizers.wrapped import MatrixMuon
from snopt.optim import SNOpt
from snopt.optim.config import RULE_DEFAULTS

Params: TypeAlias = list[nn.Parameter]
Build: TypeAlias = Callable[[nn.Module, Params, OptimizerConfig], list[Optimizer]]

WEIGHT_DECAYS = (0.0, 1e-4, 1e-3)
# Of optimizers whose weight decay is not added to the gradient.
_DECOUPLED = (0.0, 1e-2, 1e-1)
_LOW = (1e-4, 3e-4, 5e-4, 7e-4, 1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 5e-2)
_HIGH = (1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 5e-2, 7e-2, 1e-1, 3e-1, 5e-1)
# Fractions of a Newton step, up to a whole one.
_NEWTON = (1e-2, 2e-2, 3e-2, 5e-2, 7e-2, 1e-1, 2e-1, 3e-1, 5e-1, 7e-1, 1.0)
_FEW_LOW = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
_FEW_HIGH = (3e-3, 1e-2, 3e-2, 5e-2, 1e-1)
_FEW_NEWTON = (3e-2, 1e-1, 3e-1, 5e-1, 1.0)


@dataclass(frozen=True)
class Entry:
    """An optimizer that a run can use.

    Attributes:
        label: name in tables and figures.
        build: creates the optimizers from the model, the parameters to train and the settings.
        lr: learning rate on the paper's data sets, where the paper gives none.
        small_lr: learning rate on the small data sets (digits, two_moons, spirals).
        weight_decay: weight decay of the recipes.
        rates: learning rates of a sweep.
        few_rates: learning rates of a short search.
        decays: weight decays of a sweep.
        settings: the optional settings of :class:`OptimizerConfig` that it supports.
        makers: constructors that take its other settings; see :func:`options`.
        defaults: values of these settings that differ from the constructors' own.
        package: required package beyond torch.
    """

    label: str
    build: Build
    lr: float = 1e-3
    small_lr: float = 1e-2
    weight_decay: float = 0.0
    rates: tuple[float, ...] = _LOW
    few_rates: tuple[float, ...] = _FEW_LOW
    decays: tuple[float, ...] = WEIGHT_DECAYS
    settings: tuple[str, ...] = ("weight_decay",)
    makers: tuple[Callable[..., Any], ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    package: str | None = None

    @property
    def installed(self) -> bool:
        """Whether the required package is installed."""
        return self.package is None or find_spec(self.package) is not None


# ------------------------------------------------------------------------------- builders


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _snopt(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    """Create SNOpt; what is not configured is left to its defaults."""
    curvature = _given(conv=config.conv)
    names = ("momentum", "damping", "refresh_every", "refresh_first")
    settings = _given(**{name: getattr(config, name) for name in names})
    if config.nodes is not None:
        curvature["quadrature"] = UniformGrid(config.nodes)
    if config.rest_lr is not None:
        settings |= {"scope": "ode", "fallback_lr": config.rest_lr}
    for name, value in {**find(config.name).defaults, **dict(config.options)}.items():
        (curvature if name in _plain_arguments(KroneckerOptions) else settings)[name] = value
    options = KroneckerOptions(**curvature)
    decay = config.weight_decay
    return [SNOpt(model, lr=config.lr, weight_decay=decay, curvature=options, **settings)]


def _torch(maker: Callable[..., Optimizer], **own: Any) -> Build:
    def build(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
        defaults = {**own, **find(config.name).defaults}
        settings = {**defaults, **_given(momentum=config.momentum), **dict(config.options)}
        if "weight_decay" in inspect.signature(maker).parameters:
            settings["weight_decay"] = config.weight_decay
        return [maker(params, lr=config.lr, **settings)]

    return build


def _muon(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    settings = _given(momentum=config.momentum, weight_decay=config.weight_decay)
    muon = MatrixMuon([p for p in params if p.dim() >= 2], config.lr, **settings)
    return _with_adam(muon, params, config)


def _with_adam(first: Optimizer, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    """Train the other parameters with Adam, at a tenth of the rate."""
    trained = {id(p) for group in first.param_groups for p in group["params"]}
    others = [p for p in params if id(p) not in trained]
    return [first, torch.optim.Adam(others, lr=0.1 * config.lr)] if others else [first]


def _soap(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    soap = import_module("pytorch_optimizer").SOAP
    settings = {"betas": (0.95, 0.95), "precondition_frequency": 10, **dict(config.options)}
    return [soap(params, lr=config.lr, weight_decay=config.weight_decay, **settings)]


def _recursive(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    recursive_adjoint(model)
    settings = _given(lr=config.lr, damping=config.damping, weight_decay=config.weight_decay)
    return [RecursiveNewton(params, **settings, **dict(config.options))]


def _singd(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    layers = {id(p) for p in supported(model)}
    settings = _given(
        momentum=config.momentum, damping=config.damping, weight_decay=config.weight_decay
    )
    singd = StageSINGD(model, [p for p in params if id(p) in layers], config.lr, **settings)
    return _with_adam(singd, params, config)


# -------------------------------------------------------------------------------- entries

SETTINGS = (
    "weight_decay", "momentum", "damping", "refresh_every", "refresh_first", "nodes", "conv",
)  # fmt: skip

OPTIMIZERS: dict[str, Entry] = {
    "snopt": Entry(
        "SNOpt (default)", _snopt, lr=RULE_DEFAULTS["adam"]["lr"],
        small_lr=RULE_DEFAULTS["adam"]["lr"], weight_decay=RULE_DEFAULTS["adam"]["weight_decay"],
        decays=(0.0, 0.1, RULE_DEFAULTS["adam"]["weight_decay"]), settings=SETTINGS,
        makers=(SNOpt, KroneckerOptions),
    ),
    "snopt_amortized": Entry(
        "SNOpt (paper's)", _snopt, lr=1e-2, rates=_HIGH, few_rates=_FEW_HIGH,
        settings=SETTINGS, makers=(SNOpt, KroneckerOptions),
        # In Algorithm 2 each refresh replaces the previous factors, and uses the whole batch.
        defaults={"rule": "amortized", "averaging": 0.0, "sample": None},
    ),
    "adam": Entry("Adam", _torch(torch.optim.Adam), makers=(torch.optim.Adam,)),
    "adamw": Entry(
        "AdamW",
        _torch(torch.optim.AdamW),
        weight_decay=1e-2,  # torch's default; without weight decay it is Adam
        decays=_DECOUPLED,
        makers=(torch.optim.AdamW,),
    ),
    "sgd": Entry(
        "SGD", _torch(torch.optim.SGD, momentum=0.9), lr=1e-2, small_lr=0.2, rates=_HIGH,
        few_rates=_FEW_HIGH, settings=("weight_decay", "momentum"), makers=(torch.optim.SGD,),
    ),
    "muon": Entry(
        "Muon", _muon, lr=0.02, small_lr=0.03, rates=_HIGH, few_rates=_FEW_HIGH, decays=_DECOUPLED,
        settings=("weight_decay", "momentum"),
    ),
    "soap": Entry("SOAP", _soap, lr=5e-3, small_lr=0.02, package="pytorch_optimizer"),
    "lbfgs": Entry(
        "LBFGS",
        _torch(torch.optim.LBFGS),
        lr=0.1, small_lr=0.03, rates=_HIGH, few_rates=_FEW_NEWTON, settings=(),
        makers=(torch.optim.LBFGS,),
        # Five evaluations per step: what the paper's times of LBFGS relative to SNOpt amount to.
        defaults={"max_iter": 4, "max_eval": 5, "history_size": 10},
    ),
    "recursive": Entry(
        "recursive adjoint", _recursive, lr=1.0, small_lr=1.0, rates=_NEWTON,
        few_rates=_FEW_NEWTON, settings=("weight_decay", "damping"), makers=(RecursiveNewton,),
    ),
    "singd": Entry(
        "SINGD", _singd, lr=0.1, small_lr=0.1, rates=_HIGH, few_rates=_FEW_HIGH,
        settings=("weight_decay", "momentum", "damping"), package="singd",
    ),
}  # fmt: skip
"""Every optimizer by name."""


def find(name: str) -> Entry:
    """Return an entry, or raise :class:`snopt.base.errors.UnknownName`."""
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]


PALETTE = (
    "#0072b2", "#3c9bd6", "#d55e00", "#b27d00", "#009e73", "#b8569a", "#6b7280", "#7b5ea7",
)  # fmt: skip
"""Colours of curves, distinguishable with red-green colour blindness; also in report.css."""


def color_index(name: str) -> int | None:
    """Return the index of an optimizer's colour, the same in every report; None if unknown.

    Indices beyond the end of ``PALETTE`` repeat its colours, dashed.

    Example:
        >>> color_index("snopt"), color_index("my own")
        (0, None)
    """
    return list(OPTIMIZERS).index(name) if name in OPTIMIZERS else None


def grid(optimizer: str) -> list[dict[str, float]]:
    """Return the grid of an optimizer as settings by name.

    Example:
        >>> points = grid("adam")
        >>> len(points), points[1]
        (33, {'lr': 0.0001, 'weight_decay': 0.0001})
    """
    entry = find(optimizer)
    decays = entry.decays if "weight_decay" in entry.settings else (0.0,)
    return [{"lr": lr, "weight_decay": decay} for lr, decay in product(entry.rates, decays)]


def make_optimizers(model: nn.Module, config: OptimizerConfig) -> list[Optimizer]:
    """Create the optimizers of a model.

    Args:
        model: the model, plain or wrapped for several processes.
        config: the optimizer and its settings.

    Returns:
        One optimizer, or several for different parameters: Muon and SINGD train matrices and leave
        the rest to Adam; ``rest_lr`` leaves everything outside vector fields to Adam.

    Raises:
        UnknownName: the optimizer is unknown.
        ValueError: the optimizer does not have one of the given settings.
        ImportError: the package of the optimizer is not installed.

    Example:
        >>> from snopt.adjoint import NeuralODE
        >>> model = nn.Sequential(NeuralODE(nn.Linear(2, 2)), nn.GRUCell(2, 2))
        >>> config = OptimizerConfig("sgd", lr=0.1, rest_lr=1e-3)
        >>> [type(optimizer).__name__ for optimizer in make_optimizers(model, config)]
        ['SGD', 'Adam']
    """
    entry, known = find(config.name), options(config.name)
    unused = [name for name, _ in config.options if name not in known]
    for name in (*unused_settings(config), *unused):
        raise ValueError(
            f"{name}: {config.name} does not have this setting; it has "
            f"{', '.join(('lr', *entry.settings, *known))}. Leave it out, or choose another "
            "optimizer."
        )
    if not entry.installed:
        raise ImportError(
            f"{config.name} needs the package {entry.package}, which is not installed: pip install "
            f"{entry.package}"
        )
    params = [p for p in model.parameters() if p.requires_grad]
    if config.rest_lr is None or entry.build is _snopt:  # SNOpt trains the rest by Adam itself.
        return entry.build(model, params, config)
    inside = {id(p) for block in blocks_of(model) for p in block.parameters()}
    made = entry.build(model, [p for p in params if id(p) in inside], config)
    rest = [p for p in params if id(p) not in inside]
    return [*made, torch.optim.Adam(rest, lr=config.rest_lr, weight_decay=config.weight_decay)]


def options(optimizer: str) -> dict[str, Any]:
    """Return the arguments of an optimizer beyond :class:`OptimizerConfig`, with their defaults.

    Only plain arguments of its constructor count: numbers, strings, booleans and tuples.

    Example:
        >>> options("adam")["betas"], options("snopt")["on_divergence"]
        ((0.9, 0.999), 'skip')
    """
    found: dict[str, Any] = {}
    for maker in find(optimizer).makers:
        found |= _plain_arguments(maker)
    found |= find(optimizer).defaults
    own = {field.name for field in fields(OptimizerConfig)}
    return {name: value for name, value in found.items() if name not in own}


#: Arguments that are objects, or that follow from the run such as the batch size.
_HIDDEN = {"params", "model", "fields", "curvature", "quadrature", "batch_size"}


def _plain_arguments(maker: Callable[..., Any]) -> dict[str, Any]:
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: argument.default
        for name, argument in inspect.signature(maker).parameters.items()
        if name not in _HIDDEN and isinstance(argument.default, plain)
    }


def unused_settings(config: OptimizerConfig) -> dict[str, Any]:
    """Return the defaults of settings that were changed but that the optimizer does not have.

    Example:
        >>> unused_settings(OptimizerConfig("adam", 0.1, momentum=0.5, weight_decay=0.1))
        {'momentum': None}
    """
    entry = find(config.name)
    return {
        field.name: field.default
        for field in fields(config)
        if field.name in SETTINGS and field.name not in entry.settings
        if getattr(config, field.name) != field.default
    }


def make_schedulers(optimizers: list[Optimizer], config: OptimizerConfig) -> list[LRScheduler]:
    """Create the learning-rate schedules, which step once per iteration."""
    if config.cosine is not None:
        return [CosineAnnealingLR(o, config.cosine) for o in optimizers]
    if not config.milestones:
        return []
    return [MultiStepLR(o, list(config.milestones), config.gamma) for o in optimizers]
