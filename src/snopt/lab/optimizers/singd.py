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
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from snopt.adjoint import NeuralODE
from snopt.adjoint.compiled import CompiledCheckpoint
from snopt.lab.optimizers.wrapped import Wrapped

__all__ = ["StageSINGD", "supported"]

_ADJOINTS = ("checkpoint", "direct")
_MATRICES = ("Ks", "Cs", "m_Ks", "m_Cs", "H_Ks", "H_Cs")


def supported(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that SINGD can train: those of ``Linear`` and ``Conv2d``.

    Example:
        >>> len(supported(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))))
        2
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return [param for layer in layers for param in layer.parameters() if param.requires_grad]


class StageSINGD(Wrapped):
    """SINGD whose input factors are means over the calls of a solve (see the module docstring)."""

    def __init__(
        self, model: nn.Module, params: Iterable[nn.Parameter], lr: float, **settings: float
    ) -> None:
        """Create the optimizer.

        Args:
            model: the model that owns the parameters.
            params: parameters to train, among :func:`supported`.
            lr: learning rate.
            **settings: ``momentum``, ``damping`` and ``weight_decay`` of the package's SINGD.

        Raises:
            ValueError: SINGD's hooks would see a block of the model wrongly, or not at all.
        """
        _check(model)
        params = list(params)
        make = import_module("singd.optim.optimizer").SINGD
        super().__init__(params, lr, make(model, params, lr=lr, **settings))
        self.calls: Counter[nn.Module] = Counter()
        for module in self.inner.module_names:
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

    def before_step(self) -> None:
        """Divide the sums of the input factors by the number of calls."""
        for module, name in self.inner.module_names.items():
            if name in self.inner.H_Ks:
                self.inner.H_Ks[name].mul_(1.0 / self.calls[module])
        self.calls.clear()

    def inner_state(self) -> dict[str, Any]:
        """Return the state of SINGD with dense matrices."""
        own: dict[str, Any] = super().inner_state()
        dense = {k: {n: matrix.to_dense() for n, matrix in own[k].items()} for k in _MATRICES}
        return {**own, **dense}

    def load_inner_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`inner_state` returned."""
        make = self.inner.SUPPORTED_STRUCTURES["dense"].from_dense
        device = self.param_groups[0]["params"][0].device
        own = {k: {n: make(m.to(device)) for n, m in state[k].items()} for k in _MATRICES}
        super().load_inner_state({**state, **own})


def _check(model: nn.Module) -> None:
    for block in model.modules():
        if not isinstance(block, NeuralODE):
            continue
        adjoint = block.adjoint
        compiled = ", compile=True" if isinstance(adjoint, CompiledCheckpoint) else ""
        if compiled or adjoint.name not in _ADJOINTS:
            raise ValueError(
                f"a block has adjoint={adjoint.name!r}{compiled}: singd watches each stage of a "
                f"solve being differentiated once; use adjoint='checkpoint' or 'direct', without "
                "compile"
            )
