r"""Quadrature rules: the nodes along a path at which observers are called, and their weights.

Integrals over time along a solve, :math:`\int_{t_0}^{t_1} g(t)\,dt`, become sums over nodes.
A *panel* is an interval on which state and adjoint are smooth: an accepted step, or a part of
one between two requested times. Weights are positive and sum to :math:`|t_1 - t_0|`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from snopt.base.errors import check_count

Nodes = list[tuple[float, float]]


class Quadrature(Protocol):
    """A rule that places nodes on panels."""

    @property
    def stages(self) -> bool:
        """Whether fixed-step methods use their stages as nodes."""

    def panel(self, a: float, b: float, t0: float, t1: float, *, whole: bool = False) -> Nodes:
        """Return nodes ``(t, weight)`` from ``a`` to ``b``, in a solve from ``t0`` to ``t1``.

        With ``whole=True`` the panel spans many unknown steps of a black box.
        """


@lru_cache(maxsize=32)
def gauss(n: int) -> tuple[tuple[float, float], ...]:
    """Return nodes and weights of Gauss-Legendre quadrature on [0, 1].

    With ``n`` nodes it is exact for polynomials of degree ``2n - 1``.

    Example:
        >>> round(sum(w * x**3 for x, w in gauss(2)), 12)
        0.25
    """
    found = []
    for i in range(n):
        x = -math.cos(math.pi * (i + 0.75) / (n + 0.5))  # initial guess for Newton's method
        for _ in range(100):
            value, slope = _legendre(n, x)
            x -= value / slope
            if abs(value / slope) < 1e-15:
                break
        slope = _legendre(n, x)[1]
        found.append((0.5 * (x + 1.0), 1.0 / ((1.0 - x * x) * slope * slope)))
    return tuple(found)


def _legendre(n: int, x: float) -> tuple[float, float]:
    """Return the Legendre polynomial of degree ``n`` and its derivative."""
    before, value = 1.0, x
    for k in range(2, n + 1):
        before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
    return value, n * (x * value - before) / (x * x - 1.0)


@dataclass(frozen=True)
class PerStep:
    """Gauss nodes inside every accepted step.

    Attributes:
        nodes: nodes per step. Two are as accurate as the dense output of dopri5.
        whole: nodes per interval between requested times for black-box methods.
        stages: use the stages of fixed-step methods as nodes, for which the discrete gradient is
            exact. One Euler step from ``t0`` to ``t1`` yields ``(t0, t1 - t0, x(t0), Q_x(t1))``:
            the input and the output gradient of a residual layer.

    Example:
        >>> [round(t, 3) for t, w in PerStep(2).panel(0.0, 1.0, 0.0, 1.0)]
        [0.211, 0.789]
    """

    nodes: int = 2
    whole: int = 16
    stages: bool = True

    def __post_init__(self) -> None:
        """Validate the numbers of nodes."""
        check_count("nodes", self.nodes)
        check_count("whole", self.whole)

    def panel(self, a: float, b: float, t0: float, t1: float, *, whole: bool = False) -> Nodes:
        """Return Gauss nodes from ``a`` to ``b``."""
        rule = gauss(max(self.whole, self.nodes) if whole else self.nodes)
        return [(a + x * (b - a), w * abs(b - a)) for x, w in rule]


@dataclass(frozen=True)
class UniformGrid:
    """The midpoints of ``n`` equal cells of the whole solve, independent of the steps.

    The paper integrates its Kronecker factors on a uniform grid of about 100 points.

    Attributes:
        n: number of nodes.
        stages: False, because the grid does not depend on the method.

    Example:
        >>> UniformGrid(4).panel(0.5, 1.0, 0.0, 1.0)
        [(0.625, 0.25), (0.875, 0.25)]
    """

    n: int = 100
    stages: bool = False

    def __post_init__(self) -> None:
        """Validate the number of nodes."""
        check_count("n", self.n)

    def panel(self, a: float, b: float, t0: float, t1: float, *, whole: bool = False) -> Nodes:
        """Return the nodes in the half-open panel; neighbouring panels share none."""
        width = (t1 - t0) / self.n
        low, high = min(a, b), max(a, b)
        nodes = [t0 + (i + 0.5) * width for i in range(self.n)]
        inside = [(t, abs(width)) for t in nodes if low <= t < high]
        return inside if b >= a else inside[::-1]
