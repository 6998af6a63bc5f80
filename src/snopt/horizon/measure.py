r"""What a training call of a block says about its horizon.

One forward hook on the block evaluates the field once, at the end of the solve; one hook on the
block's output waits for its gradient :math:`\Phi_x`. What is kept of them is the product of the
two for each example i of the batch,

.. math:: r_i = \sum_k (\Phi_x)_{ik} F_{ik}, \qquad \sum_i r_i = \Phi_x^\top F .

**Examples.** The first axis of the state is the batch if some part of it has a second axis and
all parts agree in the first; otherwise the state is one example. For a loss that is a mean over N
examples, :math:`r_i = s_i / N` with the slope :math:`s_i` of the example's own loss.

**Several calls.** Products add up over everything between two steps, as gradients in ``.grad``
do. Calls in one forward pass (the intervals of an ODE-RNN) are about the same examples and add
up example by example; a call after a gradient has arrived (accumulation) is about others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.base.isolation import preserving
from snopt.base.types import State, leaves, real_dtype
from snopt.second_order.flat_problem import RunningCost

__all__ = [
    "Curvature",
    "Listener",
    "Measured",
    "Reduction",
    "ends_at_horizon",
    "examples",
    "row_products",
]

Curvature: TypeAlias = Literal["gradient", "examples", "exact"]
Reduction: TypeAlias = Literal["mean", "sum"]


def examples(state: State) -> int:
    """The number of examples in a state; see the module's docstring.

    Args:
        state: A tensor or a nested tuple of tensors.

    Returns:
        The size of the batch, or 1.

    Example:
        >>> examples(torch.zeros(8, 3)), examples((torch.zeros(8, 3), torch.zeros(8)))
        (8, 8)
        >>> examples(torch.zeros(8)), examples((torch.zeros(8, 3), torch.zeros(())))
        (1, 1)
    """
    parts = list(leaves(state))
    firsts = {part.shape[0] if part.ndim else 0 for part in parts}
    batched = len(firsts) == 1 and any(part.ndim > 1 for part in parts)
    return firsts.pop() if batched else 1


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


def row_products(Phi_x: Tensor, F: Tensor, N: int) -> Tensor:
    """The products r_i of gradient and field, one an example.

    Args:
        Phi_x: Gradient of the loss.
        F: The field there.
        N: Number of examples.

    Returns:
        ``[N]``, at least in single precision.

    Example:
        >>> row_products(torch.ones(2, 3), torch.arange(6.0).reshape(2, 3), 2)
        tensor([ 3., 12.])
    """
    dtype = torch.promote_types(Phi_x.dtype, torch.float32)
    product = Phi_x.to(dtype).conj() * F.to(dtype)
    if product.is_complex():
        product = product.real
    return product.reshape(N, -1).sum(1)


@dataclass
class Measured:
    r"""What was measured between two steps.

    Attributes:
        examples: N, over all passes.
        slope: :math:`\Phi_x^\top F = \sum_i r_i`.
        squares: :math:`\sum_i r_i^2`.
        running: The running cost at the horizon, a mean over passes.
        before: The field's parameters at the first call.
    """

    examples: int
    slope: float
    squares: float
    running: float
    before: list[Tensor]

    def squared_slopes(self, reduction: Reduction) -> float:
        r"""The mean (or sum) over examples of :math:`s_i^2`, the squared slope of its own loss.

        Args:
            reduction: Whether the loss is a mean or a sum over examples.

        Returns:
            The curvature of ``"examples"``.

        Example:
            Two examples whose slopes are 1 and -1, as a mean loss gives them:

            >>> measured = Measured(2, 0.5 - 0.5, 0.25 + 0.25, 0.0, [])
            >>> measured.slope**2, measured.squared_slopes("mean")
            (0.0, 1.0)
        """
        return self.squares * (self.examples if reduction == "mean" else 1)


class _Pass:
    """Products of the calls of one forward pass, by number of examples."""

    def __init__(self) -> None:
        self.rows: dict[int, Tensor] = {}
        self.running = 0.0

    def add(self, rows: Tensor) -> None:
        N = len(rows)
        self.rows[N] = self.rows[N] + rows if N in self.rows else rows


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
        self._pass: _Pass | None = None
        self._passes, self._examples = 0, 0
        self._slope, self._squares, self._running = 0.0, 0.0, 0.0
        self._before: list[Tensor] = []

    @property
    def params(self) -> list[nn.Parameter]:
        """The field's parameters, frozen ones too: they may be thawed within a window."""
        return list(self.block.field.parameters())

    def _u(self) -> tuple[nn.Parameter, ...]:
        return tuple(p for p in self.params if p.requires_grad)

    def heard(self, output: State) -> None:
        """Take in a training call: evaluate the field at its end and wait for the gradient.

        Args:
            output: x(T), on the tape.
        """
        if self._pass is None or self._pass.rows:
            self._fold()
            self._pass = _Pass()
        if self._keep_parameters and not self._before:
            self._before = [p.detach().clone() for p in self.params]
        field, first = self.block.field, next(leaves(output))
        t = torch.tensor(self.block.horizon, dtype=real_dtype(first.dtype), device=first.device)
        with torch.no_grad(), preserving(field, first.device):
            x = _detached(output)
            F = field(t, x)
            cost = self._running_cost
            running = 0.0 if cost is None else float(cost(t, x, self._u()))
        N, here = examples(output), self._pass
        unpaid = [running]  # the call's running cost counts once, with its first gradient
        for part, slope in zip(leaves(output), leaves(F), strict=True):
            if part.requires_grad:
                part.register_hook(_arrival(here, slope, N, unpaid))

    def _fold(self) -> None:
        """Turn the products of a finished pass into sums, so that memory stays bounded."""
        if self._pass is not None and self._pass.rows:
            self._passes += 1
            self._running += self._pass.running
            for N, rows in self._pass.rows.items():
                self._examples += N
                self._slope += float(rows.sum())
                self._squares += float(rows.square().sum())
        self._pass = None

    def collect(self) -> Measured | None:
        """Return what was measured since the last call, and forget it.

        Returns:
            None if no gradient has reached the block.
        """
        self._fold()
        found = None
        if self._passes:
            found = Measured(
                self._examples, self._slope, self._squares,
                self._running / self._passes, self._before,
            )  # fmt: skip
        self._forget()
        return found


def _arrival(here: _Pass, F: Tensor, N: int, unpaid: list[float]) -> Callable[[Tensor], None]:
    """A hook that adds the product of a part's gradient and slope to its pass.

    Not a method of the listener: it lives on the tape, and must hold neither tape nor block.
    """

    def arrived(Phi_x: Tensor) -> None:
        # Gradients are enabled in a backward pass only if it is to be differentiated itself:
        # then this is part of an inner derivative, not the gradient of the loss.
        if not torch.is_grad_enabled():
            here.add(row_products(Phi_x, F, N))
            here.running += sum(unpaid)
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
            listener.heard(output)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return _Hook(None)

    def __reduce__(self) -> tuple[type[_Hook], tuple[None]]:
        return _Hook, (None,)


def _detached(state: State) -> State:
    if isinstance(state, Tensor):
        return state.detach()
    return tuple(_detached(part) for part in state)
