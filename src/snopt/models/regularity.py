r"""How regular the paths of a trained block are (the paper's ``table:reg``).

The quantities that Finlay et al. (2020) penalise, measured on any Neural ODE:

.. math:: \int \|F\|^2 dt \quad\text{and}\quad \int \|\partial F / \partial x\|_F^2 dt.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.base.types import State
from snopt.models.divergence import draw_noise, estimated
from snopt.ode.norms import Seminorm


class Regularity(NamedTuple):
    """Means over a batch.

    Attributes:
        kinetic: Integral of ‖F‖².
        jacobian: Integral of ‖∂F/∂x‖², squared Frobenius norm.
    """

    kinetic: float
    jacobian: float


class _Measured(nn.Module):
    """A field with its two running costs, on (x, kinetic, jacobian, noise)."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, state: State) -> State:
        x, _, _, noise = state
        jacobian = estimated(self.field, t, x, noise)
        kinetic = jacobian.value.square().flatten(1).sum(1)
        return jacobian.value, kinetic, jacobian.square, torch.zeros_like(noise)


@torch.no_grad()
def regularity(
    block: NeuralODE, x: Tensor, *, generator: torch.Generator | None = None, **solver: Any
) -> Regularity:
    """Measure how regular a block's paths from some states are.

    The Jacobian's norm is an unbiased estimate from one draw of signs a sample.

    Args:
        block: The block; its field's samples must not influence one another.
        x: States that it starts from, (batch, ...).
        generator: Where randomness comes from; default the global one.
        **solver: Arguments of :class:`snopt.NeuralODE` for the measuring solve.

    Returns:
        The means over the batch.

    Example:
        >>> class Decay(nn.Module):
        ...     def forward(self, t, x):
        ...         return -x
        >>> found = regularity(NeuralODE(Decay(), 1.0), torch.ones(1, 3), rtol=1e-6, atol=1e-6)
        >>> round(found.kinetic, 4), round(found.jacobian, 4)     # 3 (1 - exp(-2)) / 2, and 3
        (1.297, 3.0)
    """
    options = {"norm": Seminorm(keep=1), **solver.pop("options", {})}
    measure = NeuralODE(
        _Measured(block.field), block.horizon, t0=block.t0, options=options, **solver
    )
    zero = x.new_zeros(x.shape[0])
    _, kinetic, jacobian, _ = measure((x, zero, zero, draw_noise("rademacher", x, generator)))
    return Regularity(float(kinetic.mean()), float(jacobian.mean()))
