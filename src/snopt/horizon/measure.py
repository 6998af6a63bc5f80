r"""What a training call of a block says about its horizon.

One forward hook on the block evaluates the field once, at the end of the solve; one hook on the
block's output waits for its gradient :math:`\Phi_x`. What is kept is the product of the two,
:math:`\Phi_x^\top F`.

Products add up over everything between two steps, as gradients in ``.grad`` do: over the calls of
one forward pass (the intervals of an ODE-RNN), and over passes (accumulation). A running cost adds
up over the calls of a pass and is averaged over passes; a call after a gradient has arrived begins
the next one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.base.context import Context, with_context
from snopt.base.isolation import preserving
from snopt.base.types import State, leaves, real_dtype
from snopt.second_order.flat_problem import RunningCost

__all__ = ["Listener", "Measured", "ends_at_horizon"]


def ends_at_horizon(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of a block asked for no times of its own.

    Args:
        args: The call's arguments.
        kwargs: Its keyword arguments.

    Returns:
        Whether it returned x(T).

    Example:
        >>> ends_at_horizon((torch.ones(1),), {}), ends_at_horizon((), {"t": [0.0, 0.5]})
        (True, False)
    """
    return (args[1] if len(args) > 1 else kwargs.get("t")) is None


@dataclass(frozen=True)
class Measured:
    r"""What was measured between two steps.

    Attributes:
        slope: :math:`\Phi_x^\top F`.
        running: The running cost at the horizon, a mean over passes.
        before: The field's parameters at the first call.
    """

    slope: float
    running: float
    before: list[Tensor]


@dataclass
class _Sums:
    """What has arrived since the last step. Tapes hold it: it must hold no tape and no block."""

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
    """Listens to the training calls of one block.

    The block holds a hook, which holds this object weakly, and copies of the block hold a dead
    one: nothing is kept alive, and no copy reports here.

    Args:
        block: The block.
        running_cost: ℓ(t, x, params), if there is one.
        keep_parameters: Whether the parameters at the time of the call are wanted.
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
        """The field's parameters, frozen ones too: they may be thawed later."""
        return list(self.block.field.parameters())

    def _u(self) -> tuple[nn.Parameter, ...]:
        return tuple(p for p in self.params if p.requires_grad)

    def heard(self, output: State, context: Context = None) -> None:
        """Take in a training call: evaluate the field at its end and wait for the gradient.

        Args:
            output: x(T), on the tape.
            context: What the field was given behind the state.
        """
        self._sums.arrived = False
        if self._keep_parameters and not self._before:
            self._before = [p.detach().clone() for p in self.params]
        field, first = self.block.field, next(leaves(output))
        t = torch.tensor(self.block.horizon, dtype=real_dtype(first.dtype), device=first.device)
        with torch.no_grad(), preserving(field, first.device):
            x = _detached(output)
            F = with_context(field, context)(t, x)
            cost = self._running_cost
            running = 0.0 if cost is None else float(cost(t, x, self._u()))
        unpaid = [running]  # the call's running cost counts once, with its first gradient
        for part, slope in zip(leaves(output), leaves(F), strict=True):
            if part.requires_grad:
                part.register_hook(_arrival(self._sums, slope, unpaid))

    def collect(self) -> Measured | None:
        """Return what was measured since the last call, and forget it.

        Returns:
            None if no gradient has reached the block.
        """
        sums, before = self._sums, self._before
        self._forget()
        if not sums.passes:
            return None
        return Measured(float(sums.slope), sums.running / sums.passes, before)


def _arrival(sums: _Sums, F: Tensor, unpaid: list[float]) -> Callable[[Tensor], None]:
    """A hook that adds the product of a part's gradient and slope."""

    def arrived(Phi_x: Tensor) -> None:
        # Gradients are enabled in a backward pass only if it is to be differentiated itself:
        # then this is part of an inner derivative, not the gradient of the loss.
        if not torch.is_grad_enabled():
            dtype = torch.promote_types(Phi_x.dtype, torch.float32)
            product = (Phi_x.to(dtype).conj() * F.to(dtype)).sum()
            sums.add(product.real, sum(unpaid))
            unpaid.clear()

    return arrived


class _Hook:
    """A forward hook of a block; inert in a copy or an unpickled block."""

    def __init__(self, listener: weakref.ref[Listener] | None) -> None:
        self.listener = listener

    def __call__(
        self, block: NeuralODE, args: tuple[Any, ...], kwargs: dict[str, Any], output: State
    ) -> None:
        listener = self.listener() if self.listener is not None else None
        if listener is None or not (block.training and torch.is_grad_enabled()):
            return
        if ends_at_horizon(args, kwargs) and any(part.requires_grad for part in leaves(output)):
            listener.heard(output, kwargs.get("context"))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return _Hook(None)

    def __reduce__(self) -> tuple[type[_Hook], tuple[None]]:
        return _Hook, (None,)


def _detached(state: State) -> State:
    if isinstance(state, Tensor):
        return state.detach()
    return tuple(_detached(part) for part in state)
