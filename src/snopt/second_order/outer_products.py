r"""Terminal curvature as a sum of R outer products, where Proposition 2 starts.

.. math:: Q_{xx}(t_1) = \sum_{i=1}^R s_i\, y_i y_i^\top, \qquad y_i \in R^m, \; s_i = \pm 1 .

The paper has all :math:`s_i = 1`. The signs :math:`s_i` do not enter the ODEs of :math:`q_i, p_i`;
with them Proposition 2 covers every symmetric matrix and so every terminal cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from snopt.base.packing import Packing
from snopt.base.types import State
from snopt.second_order.derivatives import hessian, pullback
from snopt.second_order.flat_problem import TerminalCost, flatten, restore
from snopt.second_order.terminal import Loss, ggn_factors

__all__ = [
    "OuterProducts",
    "TerminalFactors",
    "loss_factors",
    "gradient_factor",
    "hessian_factors",
    "matrix_factors",
]


@dataclass(frozen=True)
class OuterProducts:
    """A symmetric matrix, represented by its factors.

    Attributes:
        y: one factor per row, ``[R, m]``.
        sign: +1 or -1 per factor, ``[R]``.
    """

    y: Tensor
    sign: Tensor

    @property
    def dense(self) -> Tensor:
        """The matrix itself, ``[m, m]``."""
        return (self.y.mT * self.sign) @ self.y


#: Maps the state at t1, in the user's structure, to the factors of its curvature.
TerminalFactors: TypeAlias = Callable[[State], OuterProducts]


def matrix_factors(matrix: Tensor, rank: int | None = None) -> OuterProducts:
    r"""Factor a symmetric matrix by its eigenvectors, the largest eigenvalues first.

    :math:`y_i = \sqrt{|\lambda_i|}\, v_i`, :math:`s_i = \operatorname{sign} \lambda_i`: the best
    approximation of that rank.

    Args:
        matrix: symmetric, ``[m, m]``; it need not be definite.
        rank: R; by default the numerical rank.

    Example:
        >>> found = matrix_factors(torch.diag(torch.tensor([1.0, -4.0, 0.0])))
        >>> found.y.shape, found.sign
        (torch.Size([2, 3]), tensor([-1.,  1.]))
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"the terminal matrix has shape {tuple(matrix.shape)}; it must be [m, m] for a state "
            "of m entries."
        )
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    size = values.abs().max()
    tiny = float(torch.finfo(values.dtype).eps) * len(values) * size
    gap = (matrix - matrix.mT).abs().max()
    if gap > 1e3 * tiny:
        raise ValueError(
            f"the terminal matrix is not symmetric (off by {float(gap):.2g}); pass its symmetric "
            "part, (M + M.mT) / 2."
        )
    order = values.abs().argsort(descending=True)
    count = max(1, int((values.abs() > tiny).sum())) if rank is None else rank
    if not 1 <= count <= len(values):
        raise ValueError(f"rank = {rank} must lie between 1 and {len(values)}, the state's size.")
    kept = order[:count]
    sign = torch.where(values[kept] < 0, -1.0, 1.0).to(values.dtype)
    return OuterProducts(vectors[:, kept].mT * values[kept].abs().sqrt()[:, None], sign)


def hessian_factors(terminal_cost: TerminalCost, rank: int | None = None) -> TerminalFactors:
    r"""Factor the Hessian :math:`\Phi_{xx}` of a terminal cost, as :func:`matrix_factors` does.

    Example:
        >>> hessian_factors(lambda x: 2 * x.square().sum())(torch.ones(2)).dense
        tensor([[4., 0.], [0., 4.]])
    """

    def factors(x: State) -> OuterProducts:
        return matrix_factors(hessian(*_flat(lambda x: terminal_cost(x).reshape(()), x)), rank)

    return factors


def gradient_factor(terminal_cost: TerminalCost, scale: float = 1.0) -> TerminalFactors:
    r"""Return the rank-one choice of the paper's experiments, :math:`c\, \Phi_x \Phi_x^\top`.

    ``scale`` is c; the paper's Remark takes ``1 / (t1 - t0)``.

    Example:
        >>> gradient_factor(lambda x: x.sum())(torch.ones(2)).dense
        tensor([[1., 1.], [1., 1.]])
    """
    if not scale > 0:
        raise ValueError(f"scale = {scale} must be positive, for example 1 / (t1 - t0).")

    def factors(x: State) -> OuterProducts:
        cost, flat = _flat(lambda x: terminal_cost(x).reshape(()), x)
        y = torch.func.grad(cost)(flat)
        return OuterProducts(scale**0.5 * y[None], torch.ones_like(y[:1]))

    return factors


def loss_factors(
    loss: Loss, readout: Callable[[State], Tensor] | None = None, reduction: str = "mean"
) -> TerminalFactors:
    r"""Return exact Gauss-Newton factors of a loss of outputs :math:`o(x(t_1))`, ``[N, C]``.

    Cross-entropy gives :math:`y = \sqrt{p_c / N}\, o_x^\top (e_c - p)` for each of the N
    examples and C classes; squared error averaged over all entries gives
    :math:`y = \sqrt{2 / (N C)}\, o_x^\top e_c`. The rank is R = N C.

    Args:
        loss: ``"cross_entropy"`` or ``"squared_error"``.
        readout: maps the state to the outputs; None if the outputs are the state.
        reduction: whether the loss is a ``"mean"`` or a ``"sum"`` over examples.

    Example:
        >>> loss_factors("cross_entropy")(torch.zeros(1, 2)).dense
        tensor([[ 0.2500, -0.2500], [-0.2500,  0.2500]])
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction = {reduction!r}; use 'mean' or 'sum'.")

    def factors(x: State) -> OuterProducts:
        value, pull = pullback(*_flat(readout or (lambda state: state), x))
        N = value.shape[0]
        # One factor per class for all examples, each divided by N: separate the examples.
        classes = torch.stack(ggn_factors(value, loss)) * (N if reduction == "sum" else N**0.5)
        apart = torch.diag_embed(classes.movedim(1, -1)).movedim(1, -1)
        (y,) = torch.func.vmap(pull)(apart.reshape(-1, *value.shape))
        return OuterProducts(y, torch.ones_like(y[:, 0]))

    return factors


def _flat(
    function: Callable[[State], Tensor], x: State
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return a function of the flat state for one of the state, and the flat state."""
    packing = Packing.of(x)
    return lambda v: function(restore(packing, v)), flatten(x).detach()
