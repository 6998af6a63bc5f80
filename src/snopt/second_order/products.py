r"""Products of the Hessian and of the Gauss-Newton matrix with vectors, matrix-free.

Differentiating the adjoint method along a direction :math:`(v_x, v_u)` gives, for the tangent
:math:`\delta x` of the state and :math:`\delta\lambda` of the adjoint :math:`\lambda = Q_x`,

.. math::
    \delta\dot x = F_x\, \delta x + F_u v_u, \qquad
    -\delta\dot\lambda = H_{xx}\, \delta x + H_{xu} v_u + F_x^\top \delta\lambda, \qquad
    \delta g = \int H_{ux}\, \delta x + H_{uu} v_u + F_u^\top \delta\lambda \; dt

with :math:`H = \ell + \lambda^\top F`: forward mode over reverse mode. Then
:math:`Q_{zz} v = (\delta\lambda(t_0), \delta g)`. Putting :math:`\ell` in place of H leaves the
Gauss-Newton matrix (Theorem 1 without its matrices). Two ways to compute it:

* ``adjoint="checkpoint"`` differentiates the steps that were taken, one at a time: exact for
  the discretised solution; keeps one state and one tangent a vector and step, and no tape.
* ``adjoint="backsolve"`` solves the equations above: memory independent of the steps, any
  method, the solver's accuracy.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.second_order.derivatives import pullback, pushforward
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times
from snopt.second_order.integration import Solver
from snopt.second_order.step_products import Direction, step_product, terminal_tangent

__all__ = ["Variable", "ggn_vector_product", "hessian_vector_product"]

#: Of what the matrix is: the parameters, the initial state, or both (the state first).
Variable: TypeAlias = Literal["params", "x0", "both"]
ADJOINTS = ("checkpoint", "backsolve")


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
    method: str = "dopri5",
    rtol: float = 1e-7,
    atol: float = 1e-9,
    options: dict[str, Any] | None = None,
) -> Tensor:
    r"""The **Hessian** of :math:`\Phi(x(t_1)) + \int \ell\,dt` times one vector or many.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: :math:`\Phi`, from the state at t1 to a number.
        v: A vector ``[n]``, or k of them ``[k, n]``, which share one solve.
        running_cost: :math:`\ell(t, x, params)`, or None.
        wrt: ``"params"`` (vectors of n entries), ``"x0"`` (m) or ``"both"`` (m + n).
        adjoint: ``"checkpoint"``: exact for the discretised solution. ``"backsolve"``: memory
            independent of the number of steps.
        method: Any method of :func:`snopt.odeint`; ``"checkpoint"`` needs a native one.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options.

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
        >>> round(hessian_vector_product(Growth(), x0, (0.0, 1.0), cost, v).item(), 6)
        2.0
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost)
    solver = Solver(method, rtol, atol, options)
    return vector_product(problem, solver, v, wrt=wrt, adjoint=adjoint, exact=True)


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
    method: str = "dopri5",
    rtol: float = 1e-7,
    atol: float = 1e-9,
    options: dict[str, Any] | None = None,
) -> Tensor:
    r"""The **generalised Gauss-Newton matrix** of Theorem 1 times one vector or many.

    With :math:`J = \partial x(t_1) / \partial u` it is :math:`J^\top \Phi_{xx} J v`, and
    likewise for a running cost along the path.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: :math:`\Phi`, from the state at t1 to a number.
        v: A vector ``[n]``, or k of them ``[k, n]``, which share one solve.
        running_cost: :math:`\ell(t, x, params)`, or None.
        wrt: ``"params"`` (vectors of n entries), ``"x0"`` (m) or ``"both"`` (m + n).
        adjoint: ``"checkpoint"``: exact for the discretised solution. ``"backsolve"``: memory
            independent of the number of steps.
        method: Any method of :func:`snopt.odeint`; ``"checkpoint"`` needs a native one.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options.

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
        >>> round(ggn_vector_product(Growth(), x0, (0.0, 1.0), cost, v).item(), 6)
        1.0
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost)
    solver = Solver(method, rtol, atol, options)
    return vector_product(problem, solver, v, wrt=wrt, adjoint=adjoint, exact=False)


def vector_product(
    problem: FlatProblem,
    solver: Solver,
    v: Tensor,
    *,
    wrt: Variable = "params",
    adjoint: str = "checkpoint",
    exact: bool = True,
) -> Tensor:
    """Both products of this file, for a problem that is flat already.

    Args:
        problem: The problem.
        solver: The solver.
        v: One vector or several.
        wrt: Of what the matrix is.
        adjoint: How the solve is differentiated.
        exact: The Hessian, or the Gauss-Newton matrix.

    Returns:
        The products, shaped as ``v``.

    Raises:
        UnknownName: An unknown ``wrt`` or ``adjoint``.
        ValueError: ``v`` has the wrong size.
    """
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
    direction = Direction(z[:, :m], z[:, m:])
    with torch.no_grad():
        product = step_product if adjoint == "checkpoint" else _continuous_product
        return product(problem, solver, direction, exact)[:, chosen].reshape(v.shape)


def _continuous_product(
    problem: FlatProblem, solver: Solver, direction: Direction, exact: bool
) -> Tensor:
    """``Q_zz v`` for k directions, ``[k, m + n]``, by two solves (module's docstring)."""
    m, v_u = problem.m, direction.u

    def forward(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        x, dx = state
        slope, along = pushforward(lambda x, u: problem.F(t, x, u), (x, problem.u), (dx, v_u))
        return slope, along

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, dx, Q_x, w = state
        slope, along = forward(t, (x, dx))
        back, dw = _adjoint_slopes(problem, t, x, Q_x, Direction(dx, v_u), w[:, :m], exact)
        return slope, along, -back, -dw

    start = (problem.x0, direction.x)
    x1, dx1 = solver.integrate(forward, start, problem.t0, problem.t1)
    Q_x, dQ_x = terminal_tangent(problem, x1, dx1)
    w = torch.cat([dQ_x, x1.new_zeros(len(dx1), problem.n)], dim=1)
    return solver.integrate(backward, (x1, dx1, Q_x, w), problem.t1, problem.t0)[-1]


def _adjoint_slopes(
    problem: FlatProblem,
    t: Tensor,
    x: Tensor,
    Q_x: Tensor,
    direction: Direction,
    dQ_x: Tensor,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """Minus the slope of ``Q_x``, and of its tangent together with ``δg``."""

    def hamiltonian(x: Tensor, u: Tensor, Q_x: Tensor) -> Tensor:
        return problem.running(t, x, u) + Q_x @ problem.F(t, x, u)

    both = (0, 1)
    u = problem.u
    if exact:
        H_z = torch.func.grad(hamiltonian, both)
        (H_x, _), tangents = pushforward(H_z, (x, u, Q_x), (direction.x, direction.u, dQ_x))
        return H_x, torch.cat(tangents, dim=1)
    _, pull = pullback(lambda x, u: problem.F(t, x, u), x, u)
    dw = torch.cat(torch.func.vmap(pull)(dQ_x), dim=1)
    back = torch.zeros_like(Q_x)  # nobody reads Q_x for the Gauss-Newton matrix
    if problem.running_cost is not None:
        ell_z = torch.func.grad(lambda x, u: problem.running(t, x, u), both)
        _, bent = pushforward(ell_z, (x, u), (direction.x, direction.u))
        dw = dw + torch.cat(bent, dim=1)
    return back, dw
