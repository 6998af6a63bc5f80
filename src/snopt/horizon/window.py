r"""Averages of the terms between two updates of a horizon.

T stands still between two updates, and the parameters do not. A term measured k iterations ago
is brought to the present by the parameters' change since then,
:math:`Q_T + Q_{Tu}\,(\theta_{now} - \theta_k)`; over a window of iterations that is

.. math:: \sum_k Q_{Tu,k}\,(\theta_{now} - \theta_k)
    = \sum_j \Big(\sum_{k \le j} Q_{Tu,k}\Big)\, \delta\theta_j ,

which needs one vector, and the step :math:`\delta\theta_j` of each iteration as it happens. For a
window of one iteration it is the feedback term of ``eq:feedback`` as printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed

from snopt.base.distributed import joined

__all__ = ["Averages", "Window", "practical_Q_Tu"]


def practical_Q_Tu(slope: float, Q_u: Sequence[Tensor]) -> list[Tensor]:
    r"""The practical simplification of Appendix A.3: :math:`Q_{Tu} = (\Phi_x^\top F)\, Q_u`.

    It follows from Φ_xx ≈ Φ_x Φ_xᵀ with the whole batch as one state: then Q_Tx(T) is
    :math:`(\Phi_x^\top F)\,\Phi_x`, a multiple of the adjoint, and stays one under the ODE that
    both obey.

    Args:
        slope: :math:`\Phi_x^\top F`.
        Q_u: The gradient of the loss in the parameters, in parts.

    Returns:
        Q_Tu, in the same parts.

    Example:
        >>> practical_Q_Tu(2.0, [torch.ones(2)])
        [tensor([2., 2.])]
    """
    return [slope * part for part in Q_u]


@dataclass(frozen=True)
class Averages:
    """Means over a window's iterations, and over ranks.

    Attributes:
        horizon: T.
        slope: Φ_xᵀF + ℓ.
        feedback: Q_Tu δθ, brought to the present.
        gradient: FᵀΦ_xxF as (Φ_xᵀF)², the square taken of each iteration's whole batch.
        examples: FᵀΦ_xxF as the mean of the examples' squared slopes.
        exact: FᵀΦ_xxF itself, if it was measured.
    """

    horizon: float
    slope: float
    feedback: float
    gradient: float
    examples: float
    exact: float


@dataclass
class Window:
    """What was measured in the iterations since the last update.

    Attributes:
        rows: For each iteration whether it was measured (1 or 0), Φ_xᵀF, the mean of the
            examples' squared slopes, and ℓ.
        feedback: Sum of the feedback terms, brought to the present.
        Q_Tu: Sum of Q_Tu, one part a parameter; empty without feedback.
    """

    rows: list[list[float]] = field(default_factory=list)
    feedback: float = 0.0
    Q_Tu: list[Tensor] = field(default_factory=list)

    def miss(self) -> None:
        """Let an iteration pass without a measurement."""
        self.rows.append([0.0] * 4)

    def add(
        self,
        slope: float,
        squares: float,
        running: float = 0.0,
        Q_Tu: Sequence[Tensor] = (),
        change: Sequence[Tensor] = (),
    ) -> bool:
        """Add one iteration; it is missed if something about it is not finite.

        Args:
            slope: Φ_xᵀF.
            squares: Mean of the examples' squared slopes.
            running: ℓ at the horizon.
            Q_Tu: Mixed derivative, one part a parameter.
            change: What the parameters changed by, likewise.

        Returns:
            Whether it was added.

        Example:
            >>> window = Window()
            >>> window.add(1.0, 2.0), window.add(float("nan"), 2.0)
            (True, False)
        """
        if self.Q_Tu:
            Q_Tu = torch._foreach_add(self.Q_Tu, list(Q_Tu))
        feedback = sum(float((a * b).sum()) for a, b in zip(Q_Tu, change, strict=True))
        if not all(map(math.isfinite, (slope, squares, running, feedback))):
            self.miss()
            return False
        self.rows.append([1.0, slope, squares, running])
        self.feedback += feedback
        self.Q_Tu = list(Q_Tu)
        return True

    def averages(
        self, horizon: float, exact: float | None, device: torch.device
    ) -> Averages | None:
        """Average over iterations, and over the ranks of a process group.

        All ranks have to call it, also one that has measured nothing.

        Args:
            horizon: T on this rank.
            exact: FᵀΦ_xxF on this rank, if it was measured.
            device: Where ranks exchange tensors.

        Returns:
            The means, the same on every rank; None if nothing was measured.

        Example:
            >>> window = Window()
            >>> _ = window.add(1.0, 2.0), window.add(3.0, 4.0)
            >>> found = window.averages(0.5, None, torch.device("cpu"))
            >>> found.slope, found.gradient, found.examples
            (2.0, 5.0, 3.0)
        """
        head = [1.0, horizon, self.feedback, math.nan if exact is None else exact]
        table = torch.tensor([head, *self.rows], dtype=torch.float64)
        if joined():
            shared = table.to(device)
            distributed.all_reduce(shared)
            table = shared.cpu()
        ranks, T, feedback, bend = table[0].tolist()
        count = table[1:, 0].sum().item()
        if count == 0:
            return None
        measured = table[1:][table[1:, 0] > 0]
        means = measured / measured[:, :1]  # over the ranks that measured
        slope, squares, running = means[:, 1:].mean(0).tolist()
        return Averages(
            horizon=T / ranks,
            slope=slope + running,
            feedback=feedback / count,
            gradient=means[:, 1].square().mean().item(),
            examples=squares,
            exact=bend / ranks,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and tensors."""
        return {
            "rows": [list(row) for row in self.rows],
            "feedback": self.feedback,
            "Q_Tu": [part.clone() for part in self.Q_Tu],
        }
