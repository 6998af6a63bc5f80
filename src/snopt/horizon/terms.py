r"""The boxed ODEs of Appendix A.3: derivatives of the cost with respect to the horizon.

The cost of a solve from :math:`t_0` to T is (``eq:Q-T``)

.. math::
    \tilde Q = \Phi(x(T)) + P(T) + \int_{t_0}^T \ell(t, x, u)\, dt .

Its derivatives in T obey (``eq:T-ode``)

.. math::
    \dot Q_T = 0, \qquad \dot Q_{TT} = 0, \qquad
    -\dot Q_{Tx} = F_x^\top Q_{Tx}, \qquad -\dot Q_{Tu} = F_u^\top Q_{Tx}

backwards from their values at T. With the Hamiltonian-like function
:math:`H(t, x, u) = \ell + P' + \Phi_x(x)^\top F(t, x, u)` those values are

===========  ====================================  ======================================
             the paper (``eq:cddp-qT-term``)       exact
===========  ====================================  ======================================
Q_T          H                                     H
Q_TT         P'' + Fᵀ Φ_xx F                       dH/dT = H_t + H_xᵀ F
Q_Tx         Φ_xx F                                H_x
Q_Tu         0                                     H_u
===========  ====================================  ======================================

The paper keeps F and ℓ constant in its second-order terms, as Theorem 1 does; the exact column is
the second derivative. The ODEs are the same. docs/theory/horizon.md derives both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.second_order.derivatives import pullback
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times

__all__ = ["HorizonTerms", "Penalty", "Terminal", "horizon_terms", "penalty_slopes"]

#: The weight c of :math:`\frac c2 (T - t_0)^2`, or any function of T written with torch.
Penalty: TypeAlias = float | Callable[[Tensor], Tensor]
#: Φ_xx of the loss, or Φ_x Φ_xᵀ with the whole batch as one state.
Terminal: TypeAlias = Literal["hessian", "gradient"]


@dataclass(frozen=True)
class HorizonTerms:
    """Derivatives of the cost in the horizon, at t0.

    Attributes:
        Q_T: first derivative, 0-d.
        Q_TT: second derivative, 0-d.
        Q_Tx: mixed with the initial state, ``[m]``.
        Q_Tu: mixed with the parameters, ``[n]``, in the order of ``field.parameters()``.
    """

    Q_T: Tensor
    Q_TT: Tensor
    Q_Tx: Tensor
    Q_Tu: Tensor


def penalty_slopes(penalty: Penalty, T: float, t0: float = 0.0) -> tuple[float, float]:
    r"""Return ``P'(T)`` and ``P''(T)`` of the penalty on the horizon.

    Args:
        penalty: c of :math:`\frac c2 (T - t_0)^2`, or a function of T (a 0-d float64 tensor).
        T: the horizon.
        t0: start of the solve.

    Example:
        >>> penalty_slopes(0.1, 2.0)
        (0.2, 0.1)
        >>> penalty_slopes(lambda T: T**3, 2.0)
        (12.0, 12.0)
    """
    if not callable(penalty):
        return penalty * (T - t0), penalty
    with torch.enable_grad():
        at = torch.tensor(T, dtype=torch.float64, requires_grad=True)
        value = penalty(at)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise TypeError(
                f"penalty returned {value!r}, which has no derivative in T: compute one number "
                "from T, a 0-d tensor, with torch operations, for example 0.01 * T.abs()"
            )
        (first,) = torch.autograd.grad(value, at, create_graph=True)
        if not first.requires_grad:  # a straight line
            return float(first.detach()), 0.0
        (second,) = torch.autograd.grad(first, at, allow_unused=True, materialize_grads=True)
    return float(first.detach()), float(second.detach())


def horizon_terms(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    running_cost: RunningCost | None = None,
    penalty: Penalty = 0.0,
    *,
    terminal: Terminal = "hessian",
    exact: bool = False,
    **solver: Any,
) -> HorizonTerms:
    r"""Solve the boxed ODEs: Q_T, Q_TT, Q_Tx, Q_Tu of ``eq:T-ode`` at t0.

    This is a reference implementation in which a batch is one state.
    :class:`snopt.HorizonOptimizer` does not need these solves.

    Args:
        field: F, a module with ``forward(t, x)``; u are its parameters.
        x0: initial state.
        times: ``(t0, T)``.
        terminal_cost: :math:`\Phi`.
        running_cost: :math:`\ell(t, x, params)`.
        penalty: P: the weight c of the quadratic, or a function of T.
        terminal: Φ_xx: the ``"hessian"`` of the cost, or ``"gradient"`` for Φ_x Φ_xᵀ.
        exact: keep the derivatives of F and ℓ that the paper neglects.
        **solver: as for :func:`snopt.differential_programming`.

    Example:
        :math:`\dot x = u, \Phi = x^2/2` from 0: the cost is :math:`(uT)^2/2`.

        >>> class Constant(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = nn.Parameter(torch.tensor([3.0]))
        ...     def forward(self, t, x):
        ...         return self.u
        >>> found = horizon_terms(Constant(), torch.zeros(1), (0.0, 2.0),
        ...                       lambda x: 0.5 * x.square().sum(), exact=True)
        >>> found.Q_T, found.Q_TT, found.Q_Tu  # u²T, u², 2uT
        (tensor(18.), tensor(9.), tensor([12.]))
    """
    if terminal not in ("hessian", "gradient"):
        raise unknown("terminal", terminal, ("hessian", "gradient"))
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost, **solver)

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        F, pull = pullback(lambda x, u: problem.F(t, x, u), state[0], problem.u)
        F_x_Q, F_u_Q = pull(state[1])
        return (F, -F_x_Q, -F_u_Q)[: len(state)]

    x1 = problem.final_state()
    end = _at_horizon(problem, x1, penalty, terminal, exact)
    state = (x1, end.Q_Tx, end.Q_Tu) if problem.n else (x1, end.Q_Tx)
    _, *found = problem.backward(backward, state)
    return replace(end, **dict(zip(("Q_Tx", "Q_Tu"), found, strict=False)))


def _at_horizon(
    problem: FlatProblem, x1: Tensor, penalty: Penalty, terminal: Terminal, exact: bool
) -> HorizonTerms:
    """Return the values at T from the table in the module's docstring."""
    t, u = problem.time(problem.t1), problem.u
    P_T, P_TT = penalty_slopes(penalty, problem.t1, problem.t0)
    Phi_x: Callable[[Tensor], Tensor] = torch.func.grad(problem.terminal)
    F, g = problem.F(t, x1, u).detach(), Phi_x(x1)

    def Phi_xx(v: Tensor) -> Tensor:
        if terminal == "gradient":
            return g * (g @ v)
        product: Tensor = pullback(Phi_x, x1)[1](v)[0]
        return product

    def rate(t: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """H with its factor Φ_x held constant; the derivative of Φ_x is Φ_xx F."""
        return problem.running(t, x, u) + g @ problem.F(t, x, u)

    H, pull = pullback(rate, t, x1, u)
    Q_Tx, Q_TT, Q_Tu = Phi_xx(F), P_TT + F @ Phi_xx(F), torch.zeros_like(u)
    if exact:
        H_t, H_x, Q_Tu = pull(torch.ones_like(H))
        Q_Tx, Q_TT = Q_Tx + H_x, Q_TT + H_t + H_x @ F
    return HorizonTerms((P_T + H).detach(), Q_TT.detach(), Q_Tx.detach(), Q_Tu.detach())
