r"""Theorem 1: all second derivatives of a Neural ODE's cost in one backward solve.

Write :math:`z = (x, u)` for state and parameters together, :math:`F_z = [F_x, F_u]`
(``[m, m + n]``) and :math:`Q_{xz} = [Q_{xx}, Q_{xu}]` (the first m rows of :math:`Q_{zz}`).
The six ODEs of Theorem 1 (``eq:cddp-q``) are the blocks of

.. math::
    -\dot Q = \ell, \qquad
    -\dot Q_z = \ell_z + F_z^\top Q_x, \qquad
    -\dot Q_{zz} = \ell_{zz} + F_z^\top Q_{xz} + Q_{xz}^\top F_z .

The last right-hand side is a matrix plus its transpose, so symmetry is preserved. Theorem 1
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
from snopt.second_order.linearisation import linearise
from snopt.second_order.step_matrices import pull_matrices
from snopt.second_order.step_products import ADJOINTS, recorded_steps

__all__ = ["differential_programming", "matrix_slopes", "terminal_condition"]


def differential_programming(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    running_cost: RunningCost | None = None,
    *,
    exact: bool = False,
    adjoint: str = "backsolve",
    **solver: Any,
) -> CostToGo:
    r"""Compute cost, gradients and curvature of :math:`\Phi(x(t_1)) + \int \ell\,dt` at t0.

    * ``exact=False``: Theorem 1 (label ``prop:1``), the **generalised Gauss-Newton matrix**:
      with :math:`J = \partial x(t_1) / \partial (x_0, u)` it is :math:`J^\top \Phi_{xx} J` (and
      likewise for :math:`\ell` along the path). It is positive semi-definite if the costs are
      convex, and it is not the Hessian unless F is linear in ``(x, u)`` jointly.
    * ``exact=True``: the **Hessian**, :math:`\partial^2 Q / \partial (x_0, u)^2`.

    The gradients are exact in both cases.

    The backward solve retraces x from x(t1): memory is :math:`O((m + n)^2)` for any number of
    steps, and the accuracy is that of the solver if the field can be integrated backwards. For a
    contracting field use ``adjoint="checkpoint"``, which differentiates the steps of the
    forward solve (:mod:`snopt.second_order.step_matrices`).

    Args:
        field: F, a module with ``forward(t, x)``. Its parameters that require a gradient are u,
            flattened in the order of ``field.parameters()``.
        x0: initial state, flattened to m entries: a tensor of any shape (a batch is one state)
            or a nested tuple.
        times: ``(t0, t1)``.
        terminal_cost: :math:`\Phi`, from the state at t1 to a number.
        running_cost: :math:`\ell(t, x, params)`, a number; ``params`` is the tuple of
            parameters. It may call the field.
        exact: add the terms that Theorem 1 neglects.
        adjoint: ``"backsolve"`` solves the matrix ODEs; ``"checkpoint"`` is exact for the
            discretised solution and keeps one state per step.
        **solver: ``method`` (default ``"dopri5"``), ``rtol`` (1e-7), ``atol`` (1e-9) and
            ``options``, as for :func:`snopt.odeint`; ``"checkpoint"`` needs a native method.

    Returns:
        ``CostToGo(Q, Q_x, Q_u, Q_xx, Q_xu, Q_uu)`` at t0.

    Example:
        :math:`\dot x = u x`, :math:`\Phi = x^2 / 2`: :math:`Q = e^{2u} x_0^2 / 2`, so the
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
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost, **solver)
    if adjoint == "checkpoint":
        steps, x1 = recorded_steps(problem)
        _, Q, Q_z, Q_zz = terminal_condition(problem, x1)
        with torch.no_grad():
            for step in reversed(steps):
                Q, Q_z, Q_zz = pull_matrices(step, Q, Q_z, Q_zz, exact=exact)
        return CostToGo.split(Q, Q_z, Q_zz, problem.m, exact=exact)

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return matrix_slopes(problem, t, *state, exact=exact)

    end = terminal_condition(problem, problem.final_state())
    _, Q, Q_z, Q_zz = problem.backward(backward, end)
    return CostToGo.split(Q, Q_z, 0.5 * (Q_zz + Q_zz.mT), problem.m, exact=exact)


def terminal_condition(problem: FlatProblem, x1: Tensor) -> tuple[Tensor, ...]:
    r"""Return ``(x, Q, Q_z, Q_zz)`` at t1.

    :math:`Q = \Phi, Q_x = \Phi_x, Q_{xx} = \Phi_{xx}`, and zero for every derivative in u.
    """
    m, size = problem.m, problem.m + problem.n
    gradient, value = torch.func.grad_and_value(problem.terminal)(x1)
    Q_z, Q_zz = x1.new_zeros(size), x1.new_zeros(size, size)
    Q_z[:m] = gradient
    Q_zz[:m, :m] = hessian(problem.terminal, x1)
    return x1, value.reshape(1), Q_z, Q_zz


def matrix_slopes(
    problem: FlatProblem, t: Tensor, x: Tensor, Q: Tensor, Q_z: Tensor, Q_zz: Tensor, *, exact: bool
) -> tuple[Tensor, ...]:
    """Return the time derivatives of ``(x, Q, Q_z, Q_zz)``; see the module's docstring."""
    m = problem.m
    slope, F_z, ell, H_z, bend = linearise(problem, t, x, Q_z[:m], exact=exact)
    S = F_z.mT @ Q_zz[:m]
    return slope, -ell, -H_z, -(S + S.mT + bend)
