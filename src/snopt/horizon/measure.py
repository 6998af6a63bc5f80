r"""Measure :math:`\Phi_x^\top F` at the horizon in training calls of a block.

A forward hook on the block evaluates the field once, at the end of the solve; a hook on the
block's output receives its gradient :math:`\Phi_x`. Only their product is stored.

Between two steps, products are summed as gradients in ``.grad`` are: over the calls of one forward
pass (the intervals of an ODE-RNN) and over passes (accumulation). A running cost is summed over the
calls of a pass and averaged over passes; a call after a gradient has arrived starts the next pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.base.context import Context, detached, with_context
from snopt.base.copies import Inert, no_hook
from snopt.base.isolation import preserving
from snopt.base.types import State, leaves, real_dtype
from snopt.second_order.flat_problem import RunningCost

__all__ = ["Listener", "Measured", "ends_at_horizon"]


def ends_at_horizon(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of a block requested no times and so returned x(T).

    Example:
        >>> ends_at_horizon((torch.ones(1),), {}), ends_at_horizon((), {"t": [0.0, 0.5]})
        (True, False)
    """
    return (args[1] if len(args) > 1 else kwargs.get("t")) is None


@dataclass(frozen=True)
class Measured:
    r"""Measurements between two steps.

    Attributes:
        slope: :math:`\Phi_x^\top F`.
        running: running cost at the horizon, a mean over passes.
        before: the field's parameters at the first call.
    """

    slope: float
    running: float
    before: list[Tensor]


@dataclass
class _Sums:
    """Sums since the last step. Tapes refer to them, so they must not refer to tapes or blocks."""

    slope: Tensor | float = 0.0
    running: float = 0.0
    passes: int = 0
    arrived: bool = False  # in the present pass

    def add(self, slope: Tensor, running: float) -> None:
        self.slope = self.slope + slope
        self.running += running
        self.passes += not self.arrived
        self.arrived = True


class Listener:
    """Measures the training calls of one block.

    The block has a hook that refers to this object weakly, and copies of the block have an inert
    hook. The hook therefore keeps nothing alive, and copies of the block do not report here.

    Args:
        block: the block.
        running_cost: ℓ(t, x, params), if there is one.
        keep_parameters: whether to copy the parameters at the call.
    """

    def __init__(
        self, block: NeuralODE, running_cost: RunningCost | None, keep_parameters: bool
    ) -> None:
        self.block = block
        self._running_cost = running_cost
        self._keep_parameters = keep_parameters
        self._forget()
        handle = block.register_forward_hook(_Hook(weakref.ref(self)), with_kwargs=True)
        weakref.finalize(self, handle.remove)

    def _forget(self) -> None:
        self._sums = _Sums()
        self._before: list[Tensor] = []

    @property
    def params(self) -> list[nn.Parameter]:
        """The field's parameters, including frozen ones, which may be unfrozen later."""
        return list(self.block.field.parameters())

    def _u(self) -> tuple[nn.Parameter, ...]:
        return tuple(p for p in self.params if p.requires_grad)

    def heard(self, output: State, context: Context = None) -> None:
        """Evaluate the field at the end of a training call and wait for the gradient of x(T)."""
        self._sums.arrived = False
        if self._keep_parameters and not self._before:
            self._before = [p.detach().clone() for p in self.params]
        field, first = self.block.field, next(leaves(output))
        t = torch.tensor(self.block.horizon, dtype=real_dtype(first.dtype), device=first.device)
        with torch.no_grad(), preserving(field, first.device):
            x = detached(output)
            F = with_context(field, context)(t, x)
            cost = self._running_cost
            running = 0.0 if cost is None else float(cost(t, x, self._u()))
        unpaid = [running]  # the call's running cost counts once, with its first gradient
        for part, slope in zip(leaves(output), leaves(F), strict=True):
            if part.requires_grad:
                part.register_hook(_arrival(self._sums, slope, unpaid))

    def collect(self) -> Measured | None:
        """Return and reset the measurements; None if no gradient has reached the block."""
        sums, before = self._sums, self._before
        self._forget()
        if not sums.passes:
            return None
        return Measured(float(sums.slope), sums.running / sums.passes, before)


def _arrival(sums: _Sums, F: Tensor, unpaid: list[float]) -> Callable[[Tensor], None]:
    def arrived(Phi_x: Tensor) -> None:
        # Gradients are enabled in a backward pass only with create_graph=True. It is then part of
        # an inner derivative, not the gradient of the loss.
        if not torch.is_grad_enabled():
            dtype = torch.promote_types(Phi_x.dtype, torch.float32)
            product = (Phi_x.to(dtype).conj() * F.to(dtype)).sum()
            sums.add(product.real, sum(unpaid))
            unpaid.clear()

    return arrived


class _Hook(Inert):
    """A forward hook of a block that refers to its listener weakly."""

    in_copies = staticmethod(no_hook)

    def __init__(self, listener: weakref.ref[Listener]) -> None:
        self.listener = listener

    def __call__(
        self, block: NeuralODE, args: tuple[Any, ...], kwargs: dict[str, Any], output: State
    ) -> None:
        listener = self.listener()
        if listener is None or not (block.training and torch.is_grad_enabled()):
            return
        if ends_at_horizon(args, kwargs) and any(part.requires_grad for part in leaves(output)):
            listener.heard(output, kwargs.get("context"))
