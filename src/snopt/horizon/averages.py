r"""Moving averages of the terms of a horizon.

The slope s = Φ_xᵀF of one minibatch is mostly noise: with mean m and deviation σ, its square has
mean m² + σ². The terms are therefore computed *from averages*, as if the whole data set were one
batch,

.. math:: Q_T = P' + \bar\ell + \bar s, \qquad Q_{TT} = P'' + \bar s^2, \qquad
    Q_{Tu} = \bar s\, \bar Q_u ,

where a bar is an exponential moving average over iterations, stored as a weighted sum and its
weight. Their quotient has no bias at the start, and several processes can add their sums and
weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, distributed

from snopt.base.distributed import joined

__all__ = ["DECAY", "Averages", "Means"]

#: Decay of the weights per iteration.
DECAY = 0.99


@dataclass(frozen=True)
class Means:
    """Averages over iterations and ranks.

    Attributes:
        horizon: T.
        slope: Φ_xᵀF.
        running: ℓ at the horizon.
        along: averaged Q_u times δθ, the parameters' change in the latest iteration.
    """

    horizon: float
    slope: float
    running: float
    along: float


@dataclass
class Averages:
    """Weighted sums over the iterations of one rank.

    Attributes:
        weight: sum of the weights.
        slope: weighted sum of Φ_xᵀF.
        running: weighted sum of ℓ.
        along: weighted sum of Q_u times the parameters' change in the latest iteration; zero if
            that iteration was skipped.
        fresh: iterations measured since the last update.
        Q_u: weighted sum of the gradients, one tensor per parameter; empty without feedback.
    """

    weight: float = 0.0
    slope: float = 0.0
    running: float = 0.0
    along: float = 0.0
    fresh: int = 0
    Q_u: list[Tensor] = field(default_factory=list)

    def miss(self) -> None:
        """Skip an iteration without a measurement; the averages do not change."""
        self.along = 0.0

    def add(
        self,
        slope: float,
        running: float = 0.0,
        Q_u: Sequence[Tensor] = (),
        change: Sequence[Tensor] = (),
    ) -> bool:
        """Add one iteration; skip it and return False if a number is not finite.

        Args:
            slope: Φ_xᵀF.
            running: ℓ at the horizon.
            Q_u: gradient of the loss, one tensor per parameter.
            change: change of the parameters, likewise.

        Example:
            >>> averages = Averages()
            >>> averages.add(1.0), averages.add(float("nan"))
            (True, False)
        """
        gradients = [part.clone() for part in Q_u]
        if self.Q_u:
            torch._foreach_add_(gradients, self.Q_u, alpha=DECAY)
        along = sum(float((a * b).sum()) for a, b in zip(gradients, change, strict=True))
        if not all(map(math.isfinite, (slope, running, along))):
            self.miss()
            return False
        self.weight = DECAY * self.weight + 1.0
        self.slope = DECAY * self.slope + slope
        self.running = DECAY * self.running + running
        self.along, self.Q_u = along, gradients
        self.fresh += 1
        return True

    def take(self, horizon: float, device: torch.device) -> Means | None:
        """Average over iterations and over the ranks of a process group.

        Every rank must call it, even without a measurement.

        Args:
            horizon: T on this rank.
            device: where ranks exchange tensors.

        Returns:
            the means, equal on every rank; None if nothing was measured since the last call.

        Example:
            >>> averages = Averages()
            >>> _ = averages.add(1.0), averages.add(3.0)
            >>> means = averages.take(0.5, torch.device("cpu"))
            >>> round(means.slope, 3)  # (0.99 + 3) / (0.99 + 1)
            2.005
        """
        sums = torch.tensor(
            [1.0, horizon, self.weight, self.slope, self.running, self.along, self.fresh],
            dtype=torch.float64,
        )
        if joined():
            shared = sums.to(device)
            distributed.all_reduce(shared)
            sums = shared.cpu()
        ranks, T, weight, slope, running, along, fresh = sums.tolist()
        self.fresh = 0
        if fresh == 0:
            return None
        return Means(T / ranks, slope / weight, running / weight, along / weight)
