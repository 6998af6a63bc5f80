r"""Structured inverse-free natural gradient (SINGD) for layers inside a solver.

The package ``singd`` (https://github.com/f-dangel/singd, arXiv:2312.05705) estimates two Kronecker
factors of each ``Linear`` and ``Conv2d`` from what passes through it: inputs a, and cotangents g of
its outputs. A layer of a vector field is called at every stage of every step, and SINGD adds up
what it sees,

.. math:: \sum_{calls} E[a a^\top] \otimes \sum_{calls} E[g g^\top],

as many times too much on the left as there were calls, a number that changes with the solver's
steps. Here the left sum is divided by it. What remains is K-FAC's *expand* approximation of the
unrolled solve, calls being places that share a weight, as the pixels of a convolution do.

==========================================================  ========================================
works                                                       why
==========================================================  ========================================
``adjoint="checkpoint"`` and ``"direct"``                   each stage is differentiated once, by
                                                            its own cotangent
``Linear`` and ``Conv2d`` fed with batches: images, series  what the package knows
==========================================================  ========================================

==========================================================  ========================================
does not work                                               why
==========================================================  ========================================
``adjoint="backsolve"`` and ``"reversible"``                the field is differentiated at other
                                                            points than the forward solve's stages
``compile=True``                                            compiled steps call no hooks
densities (``CNF``)                                         layers of time have no batch axis, and
                                                            tangents pass by the layers
several processes                                           the package refuses wrapped models
==========================================================  ========================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from snopt.adjoint import NeuralODE
from snopt.adjoint.compiled import CompiledCheckpoint

__all__ = ["StageSINGD", "supported"]

_ADJOINTS = ("checkpoint", "direct")
_MATRICES = ("Ks", "Cs", "m_Ks", "m_Cs", "H_Ks", "H_Cs")


def supported(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that SINGD can train: those of ``Linear`` and ``Conv2d``.

    Example:
        >>> len(supported(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))))
        2
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return [param for layer in layers for param in layer.parameters() if param.requires_grad]


class StageSINGD(Optimizer):
    """SINGD whose factors of inputs are means over a solve's calls (see the module's docstring)."""

    def __init__(
        self,
        model: nn.Module,
        params: Iterable[nn.Parameter],
        lr: float,
        *,
        momentum: float = 0.9,
        damping: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        """Make the optimizer; other settings have the package's defaults.

        Args:
            model: the model that the parameters are of.
            params: what to train, among :func:`supported`.
            lr: learning rate.
            momentum: momentum.
            damping: damping of the factors' updates.
            weight_decay: weight decay.

        Raises:
            ValueError: A block that SINGD's hooks see wrongly, or not at all.
        """
        _check(model)
        params = list(params)
        self.singd = import_module("singd.optim.optimizer").SINGD(
            model,
            params,
            lr=lr,
            momentum=momentum,
            damping=damping,
            weight_decay=weight_decay,
        )
        super().__init__(params, {"lr": lr})
        self.calls: Counter[nn.Module] = Counter()
        for module in self.singd.module_names:
            module.register_forward_hook(self._called)

    def _called(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Count a call once its cotangent arrives."""
        if not output.requires_grad:
            return
        if inputs[0].ndim < 2:
            raise ValueError(
                f"a {type(module).__name__} was called with an input of shape "
                f"{tuple(inputs[0].shape)}: singd needs a batch axis, which layers of time do not "
                "have; choose another optimizer for this model"
            )
        output.register_hook(lambda gradient: self.calls.update([module]))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; return the closure's loss, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for module, name in self.singd.module_names.items():
            if name in self.singd.H_Ks:
                self.singd.H_Ks[name].mul_(1.0 / self.calls[module])
        self.calls.clear()
        # Schedules change the rate of this optimizer's group.
        self.singd.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.singd.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the rate and all of SINGD's state, as tensors and plain values."""
        own = self.singd.state_dict()
        for key in _MATRICES:
            own[key] = {name: matrix.to_dense() for name, matrix in own[key].items()}
        state: dict[str, Any] = super().state_dict()
        return {**state, "singd": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from :meth:`state_dict`."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "singd"})
        own = dict(state_dict["singd"])
        dense = self.singd.SUPPORTED_STRUCTURES["dense"]
        device = self.param_groups[0]["params"][0].device
        for key in _MATRICES:
            own[key] = {
                name: dense.from_dense(matrix.to(device)) for name, matrix in own[key].items()
            }
        self.singd.load_state_dict(own)


def _check(model: nn.Module) -> None:
    for block in model.modules():
        if not isinstance(block, NeuralODE):
            continue
        adjoint, compiled = block.adjoint, ""
        if isinstance(adjoint, CompiledCheckpoint):
            compiled = ", compile=True"
        if compiled or adjoint.name not in _ADJOINTS:
            raise ValueError(
                f"a block has adjoint={adjoint.name!r}{compiled}: singd watches each stage of a "
                f"solve being differentiated once; use adjoint='checkpoint' or 'direct', without "
                "compile"
            )
