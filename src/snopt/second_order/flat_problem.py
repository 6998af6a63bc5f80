r"""A user's problem as functions of flat vectors.

The mathematics of this package speaks of a state :math:`x \in R^m` and of parameters
:math:`u \in R^n` that are a constant control (``eq:ct-ocp``). A user has a module, a state of
some shape and costs. This file is the one place where the two meet: the state is flattened,
the parameters that require a gradient are laid end to end in the order of
``field.parameters()``, and the field becomes a pure function of ``(t, x, u)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from snopt.base.packing import Packing
from snopt.base.types import State, leaves, real_dtype

__all__ = ["FlatProblem", "RunningCost", "TerminalCost", "Times", "flat_parameters"]

#: ``terminal_cost(x)``, with ``x`` in the user's shape, returns a number.
TerminalCost: TypeAlias = Callable[[State], Tensor]
#: ``running_cost(t, x, params)``; ``params`` are the tensors of ``field.parameters()``.
RunningCost: TypeAlias = Callable[[Tensor, State, tuple[Tensor, ...]], Tensor]
#: The interval ``(t0, t1)``.
Times: TypeAlias = Sequence[float]


def flat_parameters(module: nn.Module) -> Tensor:
    """The parameters that require a gradient as one vector.

    Args:
        module: A field.

    Returns:
        A detached vector ``[n]``, in the order of ``module.parameters()``.

    Example:
        >>> flat_parameters(nn.Linear(2, 3)).shape
        torch.Size([9])
    """
    parts = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
    return torch.cat(parts) if parts else torch.zeros(0)


class _Swap(nn.Module):
    """Calls anything while the field's parameters are replaced.

    A running cost may call the field itself, so the replacement is made in the field.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, call: Callable[..., Any], *args: Any) -> Any:
        """``call(*args)``."""
        return call(*args)


@dataclass(frozen=True)
class FlatProblem:
    """A field and its costs on flat vectors.

    Attributes:
        field: The user's field.
        x0: Flat initial state, ``[m]``.
        u: Flat parameters, ``[n]``.
        t0: Start.
        t1: End.
        packing: The user's structure of a state.
        shape: Shape of a state that is a lone tensor.
        names: Names of the parameters, in order.
        shapes: Their shapes.
        terminal_cost: The user's terminal cost.
        running_cost: The user's running cost, if any.
    """

    field: nn.Module
    x0: Tensor
    u: Tensor
    t0: float
    t1: float
    packing: Packing
    shape: torch.Size
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    terminal_cost: TerminalCost | None = None
    running_cost: RunningCost | None = None
    _swap: _Swap = field(default_factory=lambda: _Swap(nn.Identity()), repr=False)

    @staticmethod
    def of(
        field: nn.Module,
        x0: State,
        times: Times,
        terminal_cost: TerminalCost | None = None,
        running_cost: RunningCost | None = None,
    ) -> FlatProblem:
        """Flatten a user's problem, checking it once.

        Args:
            field: The field, a module with ``forward(t, x)``.
            x0: Initial state: a tensor or a nested tuple of tensors.
            times: ``(t0, t1)``.
            terminal_cost: Cost of the final state.
            running_cost: Cost along the path.

        Returns:
            The problem.

        Raises:
            TypeError: The field is not a module, its parameters have another dtype than the
                state, or the state is complex.
            ValueError: ``times`` are not two numbers.

        Example:
            >>> problem = FlatProblem.of(nn.Identity(), torch.ones(2, 3), (0.0, 1.0))
            >>> problem.m, problem.n
            (6, 0)
        """
        if not isinstance(field, nn.Module):
            raise TypeError(
                f"the field is a {type(field).__name__}, whose parameters cannot be known; make "
                "it an nn.Module with forward(t, x)."
            )
        if len(times) != 2:
            raise ValueError(f"times = {times!r} must be a start and an end, (t0, t1).")
        packing = Packing.of(x0)
        flat = _flat(x0).detach()
        if flat.is_complex():
            raise TypeError(
                f"the state is {flat.dtype}, but curvature needs real numbers; split it by "
                "torch.view_as_real."
            )
        chosen = {name: p for name, p in field.named_parameters() if p.requires_grad}
        for name, p in chosen.items():
            if p.dtype != flat.dtype:
                raise TypeError(
                    f"parameter {name} is {p.dtype}, the state {flat.dtype}; give them one "
                    "dtype, for example by field.to(x0.dtype)."
                )
        return FlatProblem(
            field,
            flat,
            flat_parameters(field).to(flat),
            float(times[0]),
            float(times[1]),
            packing,
            x0.shape if packing.single else torch.Size([flat.numel()]),
            tuple(chosen),
            tuple(p.shape for p in chosen.values()),
            terminal_cost,
            running_cost,
            _Swap(field),
        )

    @property
    def m(self) -> int:
        """Entries of the state."""
        return self.x0.numel()

    @property
    def n(self) -> int:
        """Entries of the parameters."""
        return self.u.numel()

    def state(self, x: Tensor) -> State:
        """A flat state in the user's structure.

        Args:
            x: ``[m]``.

        Returns:
            The state as the user's functions expect it.
        """
        return self.packing.unpack(x.reshape(self.shape))

    def params(self, u: Tensor) -> tuple[Tensor, ...]:
        """Flat parameters in their own shapes.

        Args:
            u: ``[n]``.

        Returns:
            One tensor a parameter.
        """
        pieces = u.split([shape.numel() for shape in self.shapes])
        return tuple(piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The field's own parameters, those that ``u`` is a copy of."""
        return tuple(p for p in self.field.parameters() if p.requires_grad)

    def slope(self, t: Tensor, x: Tensor) -> Tensor:
        """The field with its own parameters, for autograd's tape.

        Args:
            t: Time.
            x: Flat state.

        Returns:
            The flat slope, ``[m]``.
        """
        return _flat(self.field(t, self.state(x)))

    def cost_rate(self, t: Tensor, x: Tensor) -> Tensor:
        """The running cost with the field's own parameters, for autograd's tape.

        Args:
            t: Time.
            x: Flat state.

        Returns:
            A 0-d tensor.
        """
        assert self.running_cost is not None
        return _number(self.running_cost(t, self.state(x), self.parameters), "running_cost")

    def F(self, t: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """The field as a pure function, for ``torch.func``.

        Args:
            t: Time.
            x: Flat state.
            u: Flat parameters.

        Returns:
            The flat slope, ``[m]``.
        """
        return _flat(self._swapped(u, self.field, t, self.state(x)))

    def running(self, t: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """The running cost as a pure function, for ``torch.func``; zero if there is none.

        Args:
            t: Time.
            x: Flat state.
            u: Flat parameters.

        Returns:
            A 0-d tensor.
        """
        if self.running_cost is None:
            return torch.zeros((), dtype=x.dtype, device=x.device)
        value = self._swapped(u, self.running_cost, t, self.state(x), self.params(u))
        return _number(value, "running_cost")

    def terminal(self, x: Tensor) -> Tensor:
        """The terminal cost of a flat state.

        Args:
            x: ``[m]``.

        Returns:
            A 0-d tensor.
        """
        assert self.terminal_cost is not None
        return _number(self.terminal_cost(self.state(x)), "terminal_cost")

    def time(self, t: float) -> Tensor:
        """A time as the field expects it.

        Args:
            t: A number.

        Returns:
            A 0-d tensor.
        """
        return torch.tensor(t, dtype=real_dtype(self.x0.dtype), device=self.x0.device)

    def _swapped(self, u: Tensor, call: Callable[..., Any], *args: Any) -> Any:
        params = {f"inner.{k}": p for k, p in zip(self.names, self.params(u), strict=True)}
        return torch.func.functional_call(self._swap, params, (call, *args))


def _flat(state: State) -> Tensor:
    """A state laid end to end."""
    if isinstance(state, Tensor):
        return state.reshape(-1)
    return torch.cat([leaf.reshape(-1) for leaf in leaves(state)])


def _number(value: Any, name: str) -> Tensor:
    """Check that a cost is one number."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} returned {got}; return one number, for example by .mean().")
    return value.reshape(())
