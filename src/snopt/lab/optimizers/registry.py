"""Optimizers by name, each made from the same small description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR

from snopt.adjoint import NeuralODE, UniformGrid
from snopt.base.errors import unknown
from snopt.kronecker import KroneckerOptions
from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers.muon import MatrixMuon
from snopt.lab.optimizers.recursive import recursive_adjoint
from snopt.lab.optimizers.recursive_newton import RecursiveNewton
from snopt.lab.optimizers.singd import StageSINGD, supported
from snopt.optim import SNOpt
from snopt.optim.update import Rule

__all__ = ["OPTIMIZERS", "make_optimizers", "make_schedulers"]

Params = list[nn.Parameter]


def make_optimizers(model: nn.Module, config: OptimizerConfig) -> list[Optimizer]:
    """Make what trains a model.

    Args:
        model: the model, plain or wrapped for several processes.
        config: which optimizer, and its settings.

    Returns:
        One optimizer, or several that share the parameters out among them: Muon and SINGD leave
        what is no matrix to Adam, and ``rest_lr`` leaves everything outside vector fields to Adam.

    Example:
        >>> model = nn.Sequential(NeuralODE(nn.Linear(2, 2)), nn.GRUCell(2, 2))
        >>> config = OptimizerConfig("sgd", lr=0.1, rest_lr=1e-3)
        >>> [type(optimizer).__name__ for optimizer in make_optimizers(model, config)]
        ['SGD', 'Adam']
    """
    if config.name not in OPTIMIZERS:
        raise unknown("optimizer", config.name, OPTIMIZERS)
    params = [p for p in model.parameters() if p.requires_grad]
    if config.rest_lr is None or config.name.startswith("snopt"):
        # SNOpt trains the rest by Adam itself.
        return OPTIMIZERS[config.name](model, params, config)
    blocks = [module for module in model.modules() if isinstance(module, NeuralODE)]
    inside = {id(p) for block in blocks for p in block.parameters()}
    rest = [p for p in params if id(p) not in inside]
    made = OPTIMIZERS[config.name](model, [p for p in params if id(p) in inside], config)
    adam = torch.optim.Adam(rest, lr=config.rest_lr, weight_decay=config.weight_decay)
    return [*made, adam]


def make_schedulers(optimizers: list[Optimizer], config: OptimizerConfig) -> list[LRScheduler]:
    """Make the learning-rate schedules, which are stepped once an iteration."""
    if not config.milestones:
        return []
    return [MultiStepLR(o, list(config.milestones), config.gamma) for o in optimizers]


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _snopt(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    return [_make_snopt(model, config, rule="adam")]


def _snopt_amortized(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    # Algorithm 2 has each refresh replace the factors of the one before, and hardly cuts them.
    return [_make_snopt(model, config, rule="amortized", averaging=0.0, max_size=1024)]


def _make_snopt(
    model: nn.Module, config: OptimizerConfig, *, rule: Rule, **curvature: Any
) -> Optimizer:
    curvature["conv"] = config.conv
    if config.nodes is not None:
        curvature["quadrature"] = UniformGrid(config.nodes)
    return SNOpt(
        model,
        lr=config.lr,
        weight_decay=config.weight_decay,
        refresh_every=config.refresh_every,
        refresh_first=config.refresh_first,
        scope="all" if config.rest_lr is None else "ode",
        curvature=KroneckerOptions(**curvature),
        rule=rule,
        **_given(momentum=config.momentum, damping=config.damping, fallback_lr=config.rest_lr),
    )


def _adam(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    return [torch.optim.Adam(params, lr=config.lr, weight_decay=config.weight_decay)]


def _adamw(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    return [torch.optim.AdamW(params, lr=config.lr, weight_decay=config.weight_decay)]


def _sgd(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    momentum = 0.9 if config.momentum is None else config.momentum
    return [
        torch.optim.SGD(params, lr=config.lr, momentum=momentum, weight_decay=config.weight_decay)
    ]


def _muon(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    momentum = 0.95 if config.momentum is None else config.momentum
    matrices = [p for p in params if p.dim() >= 2]
    others = [p for p in params if p.dim() < 2]
    # A tenth of Muon's rate suits Adam: Muon's steps have the size of a whole rotation.
    return [
        MatrixMuon(matrices, config.lr, momentum=momentum, weight_decay=config.weight_decay),
        torch.optim.Adam(others, lr=0.1 * config.lr),
    ]


def _lbfgs(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    if config.weight_decay:
        raise ValueError(
            f"weight_decay={config.weight_decay}: lbfgs has none; set it to 0 or choose another "
            "optimizer"
        )
    # Five evaluations a step, what the paper's times of LBFGS over SNOpt amount to.
    return [torch.optim.LBFGS(params, lr=config.lr, max_iter=4, max_eval=5, history_size=10)]


def _soap(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    try:
        from pytorch_optimizer import SOAP  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError(
            "soap is that of pytorch_optimizer, which is not installed: pip install "
            "pytorch_optimizer"
        ) from error
    made: Optimizer = SOAP(
        params,
        lr=config.lr,
        betas=(0.95, 0.95),
        precondition_frequency=10,
        weight_decay=config.weight_decay,
    )
    return [made]


def _recursive(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    recursive_adjoint(model)
    settings = _given(lr=config.lr, damping=config.damping, weight_decay=config.weight_decay)
    return [RecursiveNewton(params, **settings)]


def _singd(model: nn.Module, params: Params, config: OptimizerConfig) -> list[Optimizer]:
    layers = {id(p) for p in supported(model)}
    settings = _given(momentum=config.momentum, damping=config.damping)
    singd = StageSINGD(
        model,
        [p for p in params if id(p) in layers],
        config.lr,
        weight_decay=config.weight_decay,
        **settings,
    )
    others = [p for p in params if id(p) not in layers]
    # As with Muon, Adam has what is left at a tenth of the rate.
    return [singd, torch.optim.Adam(others, lr=0.1 * config.lr)] if others else [singd]


OPTIMIZERS: dict[str, Callable[[nn.Module, Params, OptimizerConfig], list[Optimizer]]] = {
    "snopt": _snopt,
    "snopt_amortized": _snopt_amortized,
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
    "muon": _muon,
    "lbfgs": _lbfgs,
    "soap": _soap,
    "recursive": _recursive,
    "singd": _singd,
}
"""Makers by name: ``(model, parameters to train, settings) -> optimizers``."""
