r"""Regularity of the paths of a trained block (the paper's ``table:reg``).

The quantities that Finlay et al. (2020) penalise, measured on any Neural ODE:

.. math:: \int \|F\|^2 dt \quad\text{and}\quad \int \|\partial F / \partial x\|_F^2 dt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from snopt.adjoint.block import NeuralODE
from snopt.models.cnf import FlowField
from snopt.models.divergence import draw_noise
from snopt.ode.norms import Seminorm
from snopt.ode.options import controls_error


class Regularity(NamedTuple):
    r"""Means over a batch.

    Attributes:
        kinetic: :math:`\int \lVert F \rVert^2 dt`.
        jacobian: :math:`\int \lVert \partial F / \partial x \rVert^2 dt`, squared Frobenius norm.
    """

    kinetic: float
    jacobian: float


@torch.no_grad()
def regularity(
    block: NeuralODE, x: Tensor, *, generator: torch.Generator | None = None, **solver: Any
) -> Regularity:
    """Measure the regularity of a block's paths.

    The Jacobian's norm is an unbiased estimate from one draw of signs per sample.

    Args:
        block: the block; samples must not influence each other in its field.
        x: initial states, (batch, ...).
        generator: source of randomness; default the global one.
        **solver: arguments of :class:`snopt.NeuralODE` for the measuring solve.

    Example:
        >>> class Decay(torch.nn.Module):
        ...     def forward(self, t, x):
        ...         return -x
        >>> found = regularity(NeuralODE(Decay(), 1.0), torch.ones(1, 3), rtol=1e-6, atol=1e-6)
        >>> round(found.kinetic, 4), round(found.jacobian, 4)     # 3 (1 - exp(-2)) / 2, and 3
        (1.297, 3.0)
    """
    options = dict(solver.pop("options", None) or {})
    if controls_error(solver.get("method")):
        options = {"norm": Seminorm(keep=1), **options}
    measure = NeuralODE(
        FlowField(block.field), block.horizon, t0=block.t0, options=options, **solver
    )
    integrals = (x.new_zeros(x.shape[0]),) * 3
    _, (_, *costs), _ = measure((x, integrals, draw_noise("rademacher", x, generator)))
    return Regularity(*(float(cost.mean()) for cost in costs))
