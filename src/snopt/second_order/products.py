r"""Products of the Hessian and of the Gauss-Newton matrix with vectors, matrix-free.

Differentiating the adjoint method along a direction :math:`(v_x, v_u)` gives, for the tangent
:math:`\delta x` of the state and :math:`\delta\lambda` of the adjoint :math:`\lambda = Q_x`,

.. math::
    \delta\dot x = F_x\, \delta x + F_u v_u, \qquad
    -\delta\dot\lambda = H_{xx}\, \delta x + H_{xu} v_u + F_x^\top \delta\lambda, \qquad
    \delta g = \int H_{ux}\, \delta x + H_{uu} v_u + F_u^\top \delta\lambda \; dt

with :math:`H = \ell + \lambda^\top F`: forward mode over reverse mode. Then
:math:`Q_{zz} v = (\delta\lambda(t_0), \delta g)`. Replacing H by :math:`\ell` gives the
Gauss-Newton matrix (Theorem 1 without its matrices). Two ways to compute it:

* ``adjoint="checkpoint"`` differentiates the steps that were taken, one at a time: exact for
  the discretised solution; keeps one state per step, one tangent per vector and step, no tape.
* ``adjoint="backsolve"`` solves the equations above: memory independent of the number of
  steps, any method, the solver's accuracy.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.second_order.derivatives import pullback, pushforward
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times
from snopt.second_order.step_products import ADJOINTS, Direction, step_product, terminal_tangent

__all__ = ["Variable", "ggn_vector_product", "hessian_vector_product"]

#: The variables of the matrix: the parameters, the initial state, or both (the state first).
Variable: TypeAlias = Literal["params", "x0", "both"]


def hessian_vector_product(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    v: Tensor,
    running_cost: RunningCost | None = None,
    *,
    wrt: Variable = "params",
    adjoint: str = "checkpoint",
    **solver: Any,
) -> Tensor:
    r"""Multiply the **Hessian** of :math:`\Phi(x(t_1)) + \int \ell\,dt` with one or more vectors.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: :math:`\Phi`, from the state at t1 to a number.
        v: one vector ``[n]``, or k of them ``[k, n]``, which share one solve.
        running_cost: :math:`\ell(t, x, params)`, or None.
        wrt: ``"params"`` (vectors of n entries), ``"x0"`` (m) or ``"both"`` (m + n).
        adjoint: ``"checkpoint"``: exact for the discretised solution. ``"backsolve"``: memory
            independent of the number of steps.
        **solver: ``method`` (default ``"dopri5"``), ``rtol`` (1e-7), ``atol`` (1e-9) and
            ``options``, as for :func:`snopt.odeint`; ``"checkpoint"`` needs a native method.

    Returns:
        the products, in the shape of ``v``.

    Example:
        >>> class Growth(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> problem = Growth(), torch.ones(1, dtype=torch.float64), (0.0, 1.0)
        >>> cost, v = lambda x: 0.5 * x.square().sum(), torch.ones(1, dtype=torch.float64)
        >>> round(hessian_vector_product(*problem, cost, v).item(), 6)
        2.0
        >>> round(ggn_vector_product(*problem, cost, v).item(), 6)
        1.0
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost, **solver)
    return vector_product(problem, v, wrt=wrt, adjoint=adjoint, exact=True)


def ggn_vector_product(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    v: Tensor,
    running_cost: RunningCost | None = None,
    *,
    wrt: Variable = "params",
    adjoint: str = "checkpoint",
    **solver: Any,
) -> Tensor:
    r"""Multiply the **generalised Gauss-Newton matrix** of Theorem 1 with one or more vectors.

    With :math:`J = \partial x(t_1) / \partial u` it is :math:`J^\top \Phi_{xx} J v`, and
    likewise for a running cost along the path. Arguments, return value and an example: see
    :func:`snopt.hessian_vector_product`.
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost, **solver)
    return vector_product(problem, v, wrt=wrt, adjoint=adjoint, exact=False)


def vector_product(
    problem: FlatProblem, v: Tensor, *, wrt: Variable, adjoint: str, exact: bool
) -> Tensor:
    """Compute the product with the Hessian (``exact``) or with the Gauss-Newton matrix."""
    m, n = problem.m, problem.n
    columns = {"params": slice(m, m + n), "x0": slice(0, m), "both": slice(0, m + n)}
    if wrt not in columns:
        raise unknown("wrt", wrt, columns)
    if adjoint not in ADJOINTS:
        raise unknown("adjoint", adjoint, ADJOINTS)
    chosen = columns[wrt]
    size = chosen.stop - chosen.start
    if v.ndim not in (1, 2) or v.shape[-1] != size:
        raise ValueError(
            f"v has shape {tuple(v.shape)}; for wrt={wrt!r} pass [{size}] or [k, {size}]."
        )
    rows = v.detach().to(problem.x0).reshape(-1, size)
    z = rows.new_zeros(len(rows), m + n)
    z[:, chosen] = rows
    with torch.no_grad():
        product = step_product if adjoint == "checkpoint" else _continuous_product
        return product(problem, (z[:, :m], z[:, m:]), exact)[:, chosen].reshape(v.shape)


def _continuous_product(problem: FlatProblem, direction: Direction, exact: bool) -> Tensor:
    """Return ``Q_zz v`` for k directions, ``[k, m + n]``; see the module's docstring."""
    m, v_u = problem.m, direction[1]

    def forward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, dx = state
        return pushforward(lambda x, u: problem.F(t, x, u), (x, problem.u), (dx, v_u))

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, dx, Q_x, w = state
        back, dw = _adjoint_slopes(problem, t, x, Q_x, (dx, v_u), w[:, :m], exact)
        return *forward(t, (x, dx)), -back, -dw

    start = (problem.x0, direction[0])
    x1, dx1 = problem.solver.integrate(forward, start, problem.t0, problem.t1)
    Q_x, dQ_x = terminal_tangent(problem, x1, dx1)
    w = torch.cat([dQ_x, x1.new_zeros(len(dx1), problem.n)], dim=1)
    return problem.backward(backward, (x1, dx1, Q_x, w))[-1]


def _adjoint_slopes(
    problem: FlatProblem, t: Tensor, x: Tensor, Q_x: Tensor, direction: Direction, dQ_x: Tensor,
    exact: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return minus the slope of ``Q_x``, and of its tangent together with ``δg``."""
    u = problem.u

    def running(x: Tensor, u: Tensor) -> Tensor:
        return problem.running(t, x, u)

    def hamiltonian(x: Tensor, u: Tensor, Q_x: Tensor) -> Tensor:
        return running(x, u) + Q_x @ problem.F(t, x, u)

    if exact:
        H_z = torch.func.grad(hamiltonian, (0, 1))
        (H_x, _), tangents = pushforward(H_z, (x, u, Q_x), (*direction, dQ_x))
        return H_x, torch.cat(tangents, dim=1)
    _, pull = pullback(lambda x, u: problem.F(t, x, u), x, u)
    dw = torch.cat(torch.func.vmap(pull)(dQ_x), dim=1)
    if problem.running_cost is not None:
        _, bent = pushforward(torch.func.grad(running, (0, 1)), (x, u), direction)
        dw = dw + torch.cat(bent, dim=1)
    return torch.zeros_like(Q_x), dw  # the Gauss-Newton matrix does not need Q_x
