r"""Theorem 1 through the steps that a solve took: exact for the discretised solution.

A step maps :math:`z = (x, u)` to :math:`(x_1(z), u)` and adds c(z) to the cost. With M the
Jacobian of that map, the chain rule gives the discrete counterpart of ``eq:cddp-q``,

.. math::
    Q_z \leftarrow M^\top Q_z + c_z, \qquad
    Q_{zz} \leftarrow M^\top Q_{zz} M + \bigl[ Q_x^\top x_1(z) + c(z) \bigr]_{zz},

where the bracket's first term is what linearised dynamics drop. x is never run backward, so
that fields which forget their past (whose reverse is unstable) do no harm, and a positive
semi-definite :math:`Q_{zz}` stays so. One state a step is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snopt.second_order.cost_to_go import CostToGo
from snopt.second_order.derivatives import hessian, jacobian
from snopt.second_order.flat_problem import FlatProblem
from snopt.second_order.step_products import StepMap

__all__ = ["step_cost_to_go"]


def step_cost_to_go(
    problem: FlatProblem, end: tuple[Tensor, ...], steps: list[StepMap], *, exact: bool
) -> CostToGo:
    """Carry cost, gradient and curvature back over all steps.

    Args:
        problem: The problem.
        end: ``(x, Q, Q_z, Q_zz)`` at t1.
        steps: The steps, first to last.
        exact: The Hessian, or the Gauss-Newton matrix.

    Returns:
        The cost-to-go at t0.
    """
    _, Q, Q_z, Q_zz = end
    with torch.no_grad():
        for step in reversed(steps):
            Q, Q_z, Q_zz = pull_matrices(step, Q, Q_z, Q_zz, exact=exact)
    return CostToGo.split(Q[0], Q_z, Q_zz, problem.m, exact=exact)


def pull_matrices(
    step: StepMap, Q: Tensor, Q_z: Tensor, Q_zz: Tensor, *, exact: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of the recursion in the module's docstring.

    Args:
        step: The step.
        Q: Cost after it, ``[1]``.
        Q_z: Gradient after it.
        Q_zz: Curvature after it.
        exact: Whether to keep the second derivatives of the step.

    Returns:
        The same three before the step.
    """
    problem = step.problem
    m, costly = problem.m, problem.running_cost is not None
    z = torch.cat([step.x, problem.u])
    Q_x = Q_z[:m]

    def both(z: Tensor) -> Tensor:
        """End state, then stage states, then parameters."""
        x1, X = step(z[:m], z[m:])
        return torch.cat([x1, X.reshape(-1), z[m:]]) if costly else x1

    def cost(y: Tensor) -> Tensor:
        """The step's cost in stage states and parameters."""
        return step.cost(y[: y.numel() - problem.n].reshape(-1, m), y[y.numel() - problem.n :])

    def bent(z: Tensor) -> Tensor:
        out = both(z)
        total = Q_x @ out[:m]
        return total + cost(out[m:]) if costly else total

    out, rows = jacobian(both, z)
    M = torch.eye(len(z), dtype=z.dtype, device=z.device)
    M[:m] = rows[:m]
    curved = M.mT @ Q_zz @ M
    Q_z = M.mT @ Q_z
    if costly:
        gradient, value = torch.func.grad_and_value(cost)(out[m:])
        Q, Q_z = Q + value, Q_z + rows[m:].mT @ gradient
    if exact:
        curved = curved + hessian(bent, z)
    elif costly:
        curved = curved + rows[m:].mT @ hessian(cost, out[m:]) @ rows[m:]
    return Q, Q_z, 0.5 * (curved + curved.mT)
