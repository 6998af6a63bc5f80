r"""Conversion of a user's problem to functions of flat vectors.

The equations of this package use a state :math:`x \in R^m` and parameters :math:`u \in R^n` that
are a constant control (``eq:ct-ocp``). A user has a module, a state of some shape and costs. The
state is flattened, the parameters that require a gradient are concatenated in the order of
``field.parameters()``, and the field becomes a pure function of ``(t, x, u)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from snopt.adjoint.odeint import odeint
from snopt.base.packing import Packing
from snopt.base.types import State, leaves, real_dtype

__all__ = ["FlatProblem", "RunningCost", "Solver", "TerminalCost", "Times", "flatten", "restore"]

#: ``terminal_cost(x)``, with ``x`` in the user's shape, returns a number.
TerminalCost: TypeAlias = Callable[[State], Tensor]
#: ``running_cost(t, x, params)``; ``params`` are the tensors of ``field.parameters()``.
RunningCost: TypeAlias = Callable[[Tensor, State, tuple[Tensor, ...]], Tensor]
#: The interval ``(t0, t1)``.
Times: TypeAlias = Sequence[float]
#: Time derivatives of a tuple of tensors.
Slopes: TypeAlias = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


def flatten(state: State) -> Tensor:
    """Return a state as one vector."""
    return torch.cat([leaf.reshape(-1) for leaf in leaves(state)])


def restore(packing: Packing, x: Tensor) -> State:
    """Return a flat state in the user's structure."""
    return x.reshape(packing.layout) if packing.single else packing.unpack(x)


@dataclass(frozen=True)
class Solver:
    """A method of :func:`snopt.odeint` with its tolerances and options."""

    method: str = "dopri5"
    rtol: float = 1e-7
    atol: float = 1e-9
    options: dict[str, Any] | None = None

    def integrate(
        self, slopes: Slopes, state: tuple[Tensor, ...], start: float, end: float
    ) -> tuple[Tensor, ...]:
        """Integrate a tuple of tensors from ``start`` to ``end`` without recording gradients.

        Each part of the tuple meets the tolerance separately. ``end`` may be less than ``start``.

        Example:
            >>> (x,) = Solver().integrate(lambda t, s: (-s[0],), (torch.ones(1),), 0.0, 1.0)
            >>> round(x.item(), 4)
            0.3679
        """
        with torch.no_grad():
            states = odeint(slopes, state, [start, end], **vars(self))
        return tuple(part[-1] for part in states)


class _Swap(nn.Module):
    """Calls a function while the field's parameters are replaced.

    A running cost may call the field itself, so the parameters are replaced inside the field.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)


@dataclass(frozen=True)
class FlatProblem:
    """A field, its costs and its solver, on flat vectors.

    Attributes:
        field: the user's field.
        x0: flat initial state, ``[m]``.
        u: flat parameters, ``[n]``.
        t0: start time.
        t1: end time.
        packing: structure of the user's state.
        params: the field's parameters that require a gradient, by name.
        solver: how to integrate.
        terminal_cost: the user's terminal cost.
        running_cost: the user's running cost, or None.
    """

    field: nn.Module
    x0: Tensor
    u: Tensor
    t0: float
    t1: float
    packing: Packing
    params: dict[str, nn.Parameter]
    solver: Solver
    terminal_cost: TerminalCost | None = None
    running_cost: RunningCost | None = None

    @staticmethod
    def of(
        field: nn.Module,
        x0: State,
        times: Times,
        terminal_cost: TerminalCost | None = None,
        running_cost: RunningCost | None = None,
        **solver: Any,
    ) -> FlatProblem:
        """Flatten and check a user's problem.

        Args:
            field: a module with ``forward(t, x)``.
            x0: initial state, a tensor or a nested tuple of tensors.
            times: ``(t0, t1)``.
            terminal_cost: cost of the final state.
            running_cost: cost along the path.
            **solver: ``method``, ``rtol``, ``atol`` and ``options`` of :class:`Solver`.

        Raises:
            TypeError: the field is not a module, its parameters have another dtype than the state,
                or the state is complex.
            ValueError: ``times`` are not two numbers.

        Example:
            >>> problem = FlatProblem.of(nn.Identity(), torch.ones(2, 3), (0.0, 1.0))
            >>> problem.m, problem.n
            (6, 0)
        """
        if not isinstance(field, nn.Module):
            raise TypeError(
                f"the field is a {type(field).__name__}, whose parameters are unknown; make it an "
                "nn.Module with forward(t, x)."
            )
        if len(times) != 2:
            raise ValueError(f"times = {times!r} must be a start and an end, (t0, t1).")
        packing = Packing.of(x0)
        flat = flatten(x0).detach()
        if flat.is_complex():
            raise TypeError(
                f"the state is {flat.dtype}, but curvature needs real numbers; split it with "
                "torch.view_as_real."
            )
        params = {name: p for name, p in field.named_parameters() if p.requires_grad}
        for name, p in params.items():
            if p.dtype != flat.dtype:
                raise TypeError(
                    f"parameter {name} is {p.dtype}, the state {flat.dtype}; use one dtype, for "
                    "example field.to(x0.dtype)."
                )
        u = torch.cat([flat[:0], *(p.detach().reshape(-1).to(flat) for p in params.values())])
        t0, t1 = map(float, times)
        return FlatProblem(
            field, flat, u, t0, t1, packing, params, Solver(**solver), terminal_cost, running_cost
        )

    @property
    def m(self) -> int:
        """Number of entries of the state."""
        return self.x0.numel()

    @property
    def n(self) -> int:
        """Number of entries of the parameters."""
        return self.u.numel()

    def state(self, x: Tensor) -> State:
        """Return a flat state in the user's structure."""
        return restore(self.packing, x)

    def F(self, t: Tensor, x: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the field at a flat state, ``[m]``; without ``u``, with its own parameters."""
        state = self.state(x)
        return flatten(self.field(t, state) if u is None else self._with(u, self.field, t, state))

    def running(self, t: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return the running cost, a 0-d tensor; zero if there is none."""
        if self.running_cost is None:
            return x.new_zeros(())
        pieces = tuple(self._split(u).values())
        value = self._with(u, self.running_cost, t, self.state(x), pieces)
        return _number(value, "running_cost")

    def terminal(self, x: Tensor) -> Tensor:
        """Return the terminal cost of a flat state, a 0-d tensor."""
        assert self.terminal_cost is not None
        return _number(self.terminal_cost(self.state(x)), "terminal_cost")

    def time(self, t: float) -> Tensor:
        """Return a time as the field expects it, a 0-d tensor."""
        return torch.tensor(t, dtype=real_dtype(self.x0.dtype), device=self.x0.device)

    def final_state(self) -> Tensor:
        """Solve forward and return x(t1), ``[m]``."""
        (x1,) = self.solver.integrate(
            lambda t, state: (self.F(t, state[0]),), (self.x0,), self.t0, self.t1
        )
        return x1

    def backward(self, slopes: Slopes, end: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Integrate a tuple of tensors from t1 back to t0."""
        return self.solver.integrate(slopes, end, self.t1, self.t0)

    def _split(self, u: Tensor) -> dict[str, Tensor]:
        pieces = u.split([p.numel() for p in self.params.values()])
        return {
            name: piece.reshape(p.shape)
            for (name, p), piece in zip(self.params.items(), pieces, strict=True)
        }

    def _with(self, u: Tensor, call: Callable[..., Any], *args: Any) -> Any:
        params = {f"inner.{name}": piece for name, piece in self._split(u).items()}
        return torch.func.functional_call(self._swap, params, (call, *args))

    @cached_property
    def _swap(self) -> _Swap:
        return _Swap(self.field)


def _number(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} returned {got}; return one number, for example by .mean().")
    return value.reshape(())
