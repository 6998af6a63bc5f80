r"""Proposition 2: the matrices of Theorem 1 as R independent vector ODEs.

If :math:`Q_{xx}(t_1) = \sum_i s_i y_i y_i^\top` and there is no running cost, then for all t

.. math::
    Q_{xx} = \sum_i s_i q_i q_i^\top, \quad Q_{xu} = \sum_i s_i q_i p_i^\top, \quad
    Q_{uu} = \sum_i s_i p_i p_i^\top, \qquad
    -\dot q_i = F_x^\top q_i, \quad -\dot p_i = F_u^\top q_i

(``eq:vector-ode``) with :math:`q_i(t_1) = y_i`, :math:`p_i(t_1) = 0`. Each right-hand side is
one pull-back of :math:`q_i` through the field; no Jacobian and no matrix is formed. Storage is
:math:`O(Rm + Rn)`. The derivation is in docs/theory/theorem1.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snopt.base.types import State
from snopt.second_order.flat_problem import FlatProblem, Times
from snopt.second_order.linearisation import pull_back, taped
from snopt.second_order.outer_products import OuterProducts, TerminalFactors

__all__ = ["LowRank", "low_rank"]


@dataclass(frozen=True)
class LowRank:
    """The Gauss-Newton matrix at t0, represented by its factors.

    Attributes:
        q: factors in the initial state, ``[R, m]``.
        p: factors in the parameters, ``[R, n]``.
        sign: +1 or -1 per factor, ``[R]``.
    """

    q: Tensor
    p: Tensor
    sign: Tensor

    @property
    def rank(self) -> int:
        """The number R of factors."""
        return len(self.sign)

    @property
    def Q_xx(self) -> Tensor:
        """The dense curvature in the initial state, ``[m, m]``."""
        return (self.q.mT * self.sign) @ self.q

    @property
    def Q_xu(self) -> Tensor:
        """The dense mixed curvature, ``[m, n]``."""
        return (self.q.mT * self.sign) @ self.p

    @property
    def Q_uu(self) -> Tensor:
        """The dense curvature in the parameters, ``[n, n]`` (``eq:Quu``)."""
        return (self.p.mT * self.sign) @ self.p

    def product(self, v: Tensor, *, gamma: float = 0.0) -> Tensor:
        r"""Compute :math:`(Q_{uu} + \gamma I)\, v` without forming the matrix.

        Args:
            v: one vector ``[n]`` or several ``[k, n]``.
            gamma: weight decay (the Remark after ``eq:layer-kfac``) or damping.

        Example:
            >>> two = LowRank(torch.zeros(1, 1), torch.tensor([[1.0, 2.0]]), torch.ones(1))
            >>> two.product(torch.tensor([1.0, 1.0]), gamma=0.5)
            tensor([3.5000, 6.5000])
        """
        weights: Tensor = v @ self.p.mT * self.sign
        return torch.add(weights @ self.p, v, alpha=gamma)

    def eigenvalues(self) -> Tensor:
        """Return the R eigenvalues of ``Q_uu`` that may be non-zero, in ascending order.

        Example:
            >>> factors = LowRank(torch.zeros(1, 1), torch.tensor([[3.0, 4.0]]), torch.ones(1))
            >>> factors.eigenvalues()
            tensor([25.])
        """
        _, triangle = torch.linalg.qr(self.p.mT)
        small = (triangle * self.sign) @ triangle.mT
        values: Tensor = torch.linalg.eigvalsh(0.5 * (small + small.mT))
        return values


def low_rank(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal: OuterProducts | TerminalFactors,
    **solver: Any,
) -> LowRank:
    r"""Compute the factors :math:`q_i(t_0)` and :math:`p_i(t_0)` of Proposition 2 (``prop:2``).

    They represent the matrices of :func:`snopt.differential_programming` without a running cost and
    with ``exact=False``: the **Gauss-Newton matrix** for the given terminal curvature, never the
    Hessian. Add weight decay with ``gamma`` of :meth:`LowRank.product`.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal: :math:`Q_{xx}(t_1)`: the factors :math:`y_i` themselves, or a function of the
            state at t1 that returns them (:mod:`snopt.second_order.outer_products`):
            ``loss_factors("cross_entropy", head)``, ``loss_factors("squared_error")``,
            ``matrix_factors(M, rank)``, ``hessian_factors(cost, rank)``,
            ``gradient_factor(cost)``.
        **solver: as for :func:`snopt.differential_programming`.

    Example:
        >>> from snopt.second_order.outer_products import loss_factors
        >>> class Decay(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(3, 3)
        ...     def forward(self, t, x):
        ...         return -self.linear(x)
        >>> found = low_rank(Decay(), torch.ones(2, 3), (0.0, 1.0), loss_factors("squared_error"))
        >>> found.q.shape, found.p.shape
        (torch.Size([6, 6]), torch.Size([6, 12]))
    """
    problem = FlatProblem.of(field, x0, times, **solver)
    m, x1 = problem.m, problem.final_state()
    ends = terminal if isinstance(terminal, OuterProducts) else terminal(problem.state(x1))
    if ends.y.ndim != 2 or ends.y.shape[1] != m:
        raise ValueError(
            f"the terminal factors have shape {tuple(ends.y.shape)}; they must be [R, {m}], one "
            "row of the flattened state's size each."
        )

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the slopes of x and of all w_i = (q_i, p_i)."""
        x, w = state
        slope, z = taped(problem, t, x)
        return slope.detach(), pull_back(slope, z, w[:, :m]).neg_()

    w = torch.cat([ends.y.detach().to(x1), x1.new_zeros(len(ends.y), problem.n)], dim=1)
    _, w = problem.backward(backward, (x1, w))
    return LowRank(w[:, :m], w[:, m:], ends.sign.to(x1))
