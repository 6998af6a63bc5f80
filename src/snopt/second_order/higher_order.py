r"""Third derivatives by the same method (the Remark ``r:higher-order``).

With :math:`z = (x, u)`, indices i, j, l over z and k over x alone (parameters do not move),
expanding :math:`0 = \ell + \dot Q` one order further gives

.. math::
    -\dot Q_{ijl} = \ell_{ijl}
      + \bigl[ Q_{kjl} F^k_i + Q_{ikl} F^k_j + Q_{ijk} F^k_l \bigr]
      + \bigl[ Q_{kl} F^k_{ij} + Q_{kj} F^k_{il} + Q_{ki} F^k_{jl} \bigr]
      + Q_k F^k_{ijl} .

The paper's linear dynamics of the deviations keep the first bracket only; the other terms are the
second- and third-order dynamics mentioned in the Remark. Memory is :math:`O((m + n)^3)`, so this is
for small problems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snopt.base.types import State
from snopt.second_order.cost_to_go import CostToGo
from snopt.second_order.derivatives import hessian, jacobian
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times
from snopt.second_order.matrix_odes import matrix_slopes, terminal_condition

__all__ = ["ThirdOrder", "third_order"]


@dataclass(frozen=True)
class ThirdOrder:
    """Derivatives of the cost-to-go at t0 up to third order.

    Attributes:
        second: cost, gradients and curvature.
        Q_xxx: ``[m, m, m]``.
        Q_xxu: ``[m, m, n]``.
        Q_xuu: ``[m, n, n]``.
        Q_uuu: ``[n, n, n]``.
    """

    second: CostToGo
    Q_xxx: Tensor
    Q_xxu: Tensor
    Q_xuu: Tensor
    Q_uuu: Tensor


def third_order(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    running_cost: RunningCost | None = None,
    *,
    exact: bool = True,
    **solver: Any,
) -> ThirdOrder:
    r"""Compute derivatives up to the third of :math:`\Phi(x(t_1)) + \int \ell\,dt` at t0.

    ``exact=True`` gives the **true** second and third derivatives. ``exact=False`` follows the
    paper's linear dynamics: derivatives of the cost along the linearised path, for a terminal
    cost alone :math:`\Phi_{xxx}` with :math:`J = \partial x(t_1) / \partial (x_0, u)` on every
    index. The other arguments are those of :func:`snopt.differential_programming`; the terminal
    cost must be three times differentiable.

    Example:
        :math:`\dot x = u x`, :math:`\Phi = x^2/2`: the third derivative of
        :math:`e^{2u} x_0^2 / 2` in u at u = 0 is 4.

        >>> class Growth(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> found = third_order(Growth(), x0, (0.0, 1.0), lambda x: 0.5 * x.square().sum())
        >>> round(found.Q_uuu.item(), 5)
        4.0
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost, **solver)
    m, size = problem.m, problem.m + problem.n

    def backward(t: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, _, Q_z, Q_zz, Q_zzz = state
        lower = matrix_slopes(problem, t, *state[:-1], exact=exact)
        return *lower, -_tensor_rate(problem, t, x, Q_z, Q_zz, Q_zzz, exact)

    x1 = problem.final_state()
    Q_zzz = x1.new_zeros(size, size, size)
    Q_zzz[:m, :m, :m] = torch.func.jacrev(lambda x: hessian(problem.terminal, x))(x1)
    end = (*terminal_condition(problem, x1), Q_zzz)
    _, Q, Q_z, Q_zz, Q_zzz = problem.backward(backward, end)
    second = CostToGo.split(Q, Q_z, 0.5 * (Q_zz + Q_zz.mT), m, exact=exact)
    return ThirdOrder(
        second, Q_zzz[:m, :m, :m], Q_zzz[:m, :m, m:], Q_zzz[:m, m:, m:], Q_zzz[m:, m:, m:]
    )


def _tensor_rate(
    problem: FlatProblem, t: Tensor, x: Tensor, Q_z: Tensor, Q_zz: Tensor, Q_zzz: Tensor,
    exact: bool,
) -> Tensor:  # fmt: skip
    """Return the right-hand side of the equation in the module's docstring."""
    m = problem.m
    z = torch.cat([x, problem.u])

    def F(z: Tensor) -> Tensor:
        return problem.F(t, z[:m], z[m:])

    def bent(z: Tensor) -> Tensor:
        running = problem.running(t, z[:m], z[m:])
        return running + Q_z[:m] @ F(z) if exact else running

    _, F_z = jacobian(F, z)
    total = over_indices(torch.einsum("kjl,ki->ijl", Q_zzz[:m], F_z))
    if exact:
        F_zz = torch.func.jacrev(lambda z: jacobian(F, z)[1])(z)
        total = total + over_indices(torch.einsum("kjl,ki->ijl", F_zz, Q_zz[:m]))
    if exact or problem.running_cost is not None:
        total = total + torch.func.jacrev(lambda z: hessian(bent, z))(z)
    return total


def over_indices(T: Tensor) -> Tensor:
    r"""Compute :math:`T_{ijl} + T_{jil} + T_{lij}` for a T symmetric in its last two indices.

    Example:
        >>> e = torch.eye(2)
        >>> over_indices(torch.einsum("i,j,l->ijl", e[0], e[1], e[1]))[1]
        tensor([[0., 1.], [1., 0.]])
    """
    return T + T.permute(1, 0, 2) + T.permute(1, 2, 0)
