r"""Theorem 1: all second derivatives of a Neural ODE's cost by one backward solve.

Write :math:`z = (x, u)` for state and parameters together, :math:`F_z = [F_x, F_u]`
(``[m, m + n]``) and :math:`Q_{xz} = [Q_{xx}, Q_{xu}]` (the first m rows of :math:`Q_{zz}`).
The six ODEs of Theorem 1 (``eq:cddp-q``) are the blocks of

.. math::
    -\dot Q = \ell, \qquad
    -\dot Q_z = \ell_z + F_z^\top Q_x, \qquad
    -\dot Q_{zz} = \ell_{zz} + F_z^\top Q_{xz} + Q_{xz}^\top F_z .

The last right-hand side is a matrix plus its transpose, so that symmetry is kept. Theorem 1
linearises the dynamics and so drops :math:`\sum_k Q_{x_k} F^k_{zz}`; with it (``exact``) the
equation is that of the true Hessian. The derivation is in docs/theory/theorem1.md.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.second_order.cost_to_go import CostToGo
from snopt.second_order.derivatives import hessian
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times
from snopt.second_order.integration import Solver
from snopt.second_order.linearisation import linearise
from snopt.second_order.step_matrices import step_cost_to_go
from snopt.second_order.step_products import recorded_steps

__all__ = ["differential_programming", "matrix_slopes", "terminal_condition"]

ADJOINTS = ("backsolve", "checkpoint")


def differential_programming(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    running_cost: RunningCost | None = None,
    *,
    exact: bool = False,
    adjoint: str = "backsolve",
    method: str = "dopri5",
    rtol: float = 1e-7,
    atol: float = 1e-9,
    options: dict[str, Any] | None = None,
) -> CostToGo:
    r"""Cost, gradients and curvature of :math:`\Phi(x(t_1)) + \int \ell\,dt` at :math:`t_0`.

    What the curvature is:

    * ``exact=False``: Theorem 1 (label ``prop:1``), the **generalised Gauss-Newton matrix**:
      with :math:`J = \partial x(t_1) / \partial (x_0, u)` it is :math:`J^\top \Phi_{xx} J` (and
      likewise for :math:`\ell` along the path). It is positive semi-definite if the costs are
      convex, and it is not the Hessian unless F is linear in ``(x, u)`` jointly.
    * ``exact=True``: the **Hessian**, :math:`\partial^2 Q / \partial (x_0, u)^2`.

    The gradients are exact in both cases.

    The backward solve retraces x from x(t1): memory is :math:`O((m + n)^2)` whatever the number
    of steps, and accuracy that of the solver as long as the field may be run backwards. For a
    field that contracts use ``adjoint="checkpoint"``, which takes the same derivatives through
    the steps of the forward solve (:mod:`snopt.second_order.step_matrices`).

    Args:
        field: F, a module with ``forward(t, x)``. Its parameters that require a gradient are u,
            flattened in the order of ``field.parameters()``.
        x0: Initial state, flattened to m entries: a tensor of any shape (a batch is one state)
            or a nested tuple.
        times: ``(t0, t1)``.
        terminal_cost: :math:`\Phi`, from the state at t1 to a number.
        running_cost: :math:`\ell(t, x, params)`, a number; ``params`` is the tuple of
            parameters. It may call the field.
        exact: Whether to add the terms that Theorem 1 leaves out.
        adjoint: ``"backsolve"`` solves the matrix ODEs; ``"checkpoint"`` is exact for the
            discretised solution and keeps one state a step.
        method: Any method of :func:`snopt.odeint`; ``"checkpoint"`` needs a native one.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options.

    Returns:
        ``CostToGo(Q, Q_x, Q_u, Q_xx, Q_xu, Q_uu)`` at t0.

    Raises:
        UnknownName: An unknown adjoint.

    Example:
        :math:`\dot x = u x`, :math:`\Phi = x^2 / 2`: :math:`Q = e^{2u} x_0^2 / 2`, so that the
        Hessian in u is :math:`2 e^{2u} x_0^2` and the Gauss-Newton matrix half of it.

        >>> class Growth(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> def cost(x):
        ...     return 0.5 * x.square().sum()
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> for exact in (False, True):
        ...     found = differential_programming(Growth(), x0, (0.0, 1.0), cost, exact=exact)
        ...     print(round(found.Q_u.item(), 6), round(found.Q_uu.item(), 6))
        1.0 1.0
        1.0 2.0
    """
    if adjoint not in ADJOINTS:
        raise unknown("adjoint", adjoint, ADJOINTS)
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost)
    solver = Solver(method, rtol, atol, options)
    if adjoint == "checkpoint":
        steps, x1 = recorded_steps(problem, solver)
        end = terminal_condition(problem, x1)
        return step_cost_to_go(problem, end, steps, exact=exact)
    t0, t1 = problem.t0, problem.t1

    def forward(t: Tensor, state: tuple[Tensor]) -> tuple[Tensor]:
        return (problem.slope(t, state[0]),)

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return matrix_slopes(problem, t, *state, exact=exact)

    (x1,) = solver.integrate(forward, (problem.x0,), t0, t1)
    _, Q, Q_z, Q_zz = solver.integrate(backward, terminal_condition(problem, x1), t1, t0)
    return CostToGo.split(Q[0], Q_z, 0.5 * (Q_zz + Q_zz.mT), problem.m, exact=exact)


def terminal_condition(problem: FlatProblem, x1: Tensor) -> tuple[Tensor, ...]:
    r"""The state of the backward solve at t1.

    :math:`Q = \Phi, Q_x = \Phi_x, Q_{xx} = \Phi_{xx}`, and zero for all that has a u.

    Args:
        problem: The problem.
        x1: State at t1, ``[m]``.

    Returns:
        ``(x, Q, Q_z, Q_zz)``.
    """
    m, size = problem.m, problem.m + problem.n
    gradient, value = torch.func.grad_and_value(problem.terminal)(x1)
    Q_z, Q_zz = x1.new_zeros(size), x1.new_zeros(size, size)
    Q_z[:m] = gradient
    Q_zz[:m, :m] = hessian(problem.terminal, x1)
    return x1, value.reshape(1), Q_z, Q_zz


def matrix_slopes(
    problem: FlatProblem,
    t: Tensor,
    x: Tensor,
    Q: Tensor,
    Q_z: Tensor,
    Q_zz: Tensor,
    *,
    exact: bool,
) -> tuple[Tensor, ...]:
    """Time derivatives of ``(x, Q, Q_z, Q_zz)``: the equations of the module's docstring.

    Args:
        problem: The problem.
        t: Time.
        x: State, ``[m]``.
        Q: Cost so far, ``[1]``.
        Q_z: Gradient, ``[m + n]``.
        Q_zz: Curvature, ``[m + n, m + n]``.
        exact: Whether to keep the second derivatives of F.

    Returns:
        Their slopes, in the same order.
    """
    m = problem.m
    at = linearise(problem, t, x, Q_z[:m], exact=exact)
    S = at.F_z.mT @ Q_zz[:m]
    rate = S + S.mT
    if at.bend is not None:
        rate += at.bend
    return at.slope, -at.ell, -at.H_z, -rate
