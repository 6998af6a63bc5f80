r"""Theorem 1 through the steps that a solve took: exact for the discretised solution.

A step maps :math:`z = (x, u)` to :math:`(x_1(z), u)` and adds c(z) to the cost. With M the
Jacobian of that map, the chain rule gives the discrete counterpart of ``eq:cddp-q``,

.. math::
    Q_z \leftarrow M^\top Q_z + c_z, \qquad
    Q_{zz} \leftarrow M^\top Q_{zz} M + \bigl[ Q_x^\top x_1(z) + c(z) \bigr]_{zz},

where linearised dynamics drop the first term of the bracket. x is never integrated backwards, so
contracting fields (whose reverse is unstable) are handled correctly, and a positive semi-definite
:math:`Q_{zz}` stays positive semi-definite. One state per step is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snopt.second_order.derivatives import hessian, jacobian
from snopt.second_order.step_products import StepMap

__all__ = ["pull_matrices"]


def pull_matrices(
    step: StepMap, Q: Tensor, Q_z: Tensor, Q_zz: Tensor, *, exact: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``Q``, ``Q_z`` and ``Q_zz`` before the step, given those after it."""
    problem = step.problem
    m, costly = problem.m, problem.running_cost is not None
    z = torch.cat([step.x, problem.u])
    Q_x = Q_z[:m]

    def both(z: Tensor) -> Tensor:
        """Return the end state, the stage states and the parameters as one vector."""
        x1, X = step(z[:m], z[m:])
        return torch.cat([x1, X.reshape(-1), z[m:]]) if costly else x1

    def cost(y: Tensor) -> Tensor:
        """Return the step's cost as a function of stage states and parameters."""
        X, u = y.tensor_split([y.numel() - problem.n])
        return step.cost(X.reshape(-1, m), u)

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
