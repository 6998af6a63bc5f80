r"""The recursive adjoint: second derivatives by differentiating the adjoint ODE again.

The gradient of a solve is another solve, of the augmented field ``eq:backward-ode``

.. math:: G(t, (x, a, g)) = (F,\; -F_x^\top a,\; -F_u^\top a)

from t1 to t0, parameters' gradient included in its state. A solve whose gradient is a solve can
be differentiated as often as one likes: each derivative adds one more solve on top, over a state
about twice as long, that starts from the rounded result of the one before. This is the baseline
that Theorem 1 is compared with. It is here to be measured, not to be used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from snopt.base.types import State
from snopt.curvature.flat_problem import FlatProblem, TerminalCost, Times
from snopt.curvature.integration import Solver

__all__ = ["recursive_gradient", "recursive_hessian_product"]

#: ``F(t, x, u)`` on flat vectors.
FlatField: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


def recursive_gradient(
    field: nn.Module, x0: State, times: Times, terminal_cost: TerminalCost, **solver: Any
) -> Tensor:
    """The gradient in the parameters by the adjoint method as first published.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: From the state at t1 to a number.
        **solver: ``method``, ``rtol``, ``atol``, ``options``.

    Returns:
        The gradient, ``[n]``.

    Example:
        >>> class Field(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(2, 2)
        ...     def forward(self, t, x):
        ...         return self.linear(x)
        >>> recursive_gradient(Field(), torch.ones(2), (0.0, 1.0), lambda x: x.sum()).shape
        torch.Size([6])
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost)
    u = problem.u.clone().requires_grad_()
    return _gradient(problem, Solver(**solver), u, create_graph=False)


def recursive_hessian_product(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    v: Tensor,
    **solver: Any,
) -> Tensor:
    """The Hessian in the parameters times vectors, by the adjoint of the adjoint.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: From the state at t1 to a number.
        v: One vector ``[n]`` or several ``[k, n]``; each takes a solve of its own.
        **solver: ``method``, ``rtol``, ``atol``, ``options``.

    Returns:
        The products, shaped as ``v``.

    Example:
        >>> class Growth(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> x0 = v = torch.ones(1, dtype=torch.float64)
        >>> cost = lambda x: 0.5 * x.square().sum()
        >>> round(recursive_hessian_product(Growth(), x0, (0.0, 1.0), cost, v).item(), 5)
        2.0
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost)
    u = problem.u.clone().requires_grad_()
    gradient = _gradient(problem, Solver(**solver), u, create_graph=True)
    rows = [
        torch.autograd.grad(gradient, u, row, retain_graph=True)[0]
        for row in v.detach().to(u).reshape(-1, problem.n)
    ]
    return torch.stack(rows).reshape(v.shape)


def _gradient(problem: FlatProblem, solver: Solver, u: Tensor, *, create_graph: bool) -> Tensor:
    """The gradient in u, itself differentiable if asked."""
    with torch.enable_grad():
        parts = (problem.m,)
        times = (problem.t0, problem.t1)
        x1 = _RecursiveSolve.apply(solver, problem.F, parts, times, problem.x0, u)
        cost = problem.terminal(x1)
        return torch.autograd.grad(cost, u, create_graph=create_graph)[0]


def adjoint_field(F: FlatField, m: int) -> FlatField:
    """The augmented field G of the module's docstring, differentiable again.

    Args:
        F: A field on flat states of size m.
        m: Its size.

    Returns:
        A field on states ``(x, a, g)`` laid end to end.

    Example:
        >>> G = adjoint_field(lambda t, x, u: u * x, 1)
        >>> G(torch.tensor(0.0), torch.tensor([2.0, 1.0, 0.0]), torch.tensor([3.0])).detach()
        tensor([ 6., -3., -2.])
    """

    def G(t: Tensor, state: Tensor, u: Tensor) -> Tensor:
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            x, a = state[:m], state[m : 2 * m]
            if not (keep and x.requires_grad):
                x = x.detach().requires_grad_()
            if not (keep and u.requires_grad):
                u = u.detach().requires_grad_()
            slope = F(t, x, u)
            found = torch.autograd.grad(slope, (x, u), a, create_graph=keep, allow_unused=True)
        a_F_x = torch.zeros_like(x) if found[0] is None else found[0]
        a_F_u = torch.zeros_like(u) if found[1] is None else found[1]
        out = torch.cat([slope, -a_F_x, -a_F_u])
        return out if keep else out.detach()

    return G


class _RecursiveSolve(torch.autograd.Function):
    """A solve whose backward pass is a solve of the same kind."""

    @staticmethod
    def forward(
        ctx: Any,
        solver: Solver,
        F: FlatField,
        parts: tuple[int, ...],
        times: tuple[float, float],
        x: Tensor,
        u: Tensor,
    ) -> Tensor:
        """Solve without a tape, every part of the state held to the tolerance by itself."""

        def slope(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(F(t, torch.cat(state), u).split(parts))

        x1 = torch.cat(solver.integrate(slope, x.split(parts), *times))
        ctx.solver, ctx.F, ctx.parts, ctx.times = solver, F, parts, times
        ctx.save_for_backward(x1, u)
        return x1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Solve the augmented field back to the start."""
        x1, u = ctx.saved_tensors
        m, n = x1.numel(), u.numel()
        state = torch.cat([x1, gradients[0], torch.zeros_like(u)])
        G, parts = adjoint_field(ctx.F, m), (*ctx.parts, *ctx.parts, n)
        back = _RecursiveSolve.apply(ctx.solver, G, parts, ctx.times[::-1], state, u)
        return None, None, None, None, back[m : 2 * m], back[2 * m :]
