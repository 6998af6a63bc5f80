"""How the storage of second-order methods grows (``table:memory-comp``).

The field is ``linear -> tanh -> linear`` on d dimensions for a batch of points, so that
m = batch * d and n = 2 (d² + d). Double precision, rk4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snopt.adjoint import NeuralODE
from snopt.optim import SNOpt
from snopt.second_order.low_rank import low_rank
from snopt.second_order.matrix_odes import differential_programming
from snopt.second_order.outer_products import OuterProducts
from snopt.second_order.products import hessian_vector_product

__all__ = ["AXES", "METHODS", "Size", "slope"]

DTYPE = torch.float64


class Size(NamedTuple):
    """How large a problem is.

    Attributes:
        d: dimension of a point.
        batch: how many points.
        R: rank of the terminal curvature.
        steps: of the solve.
    """

    d: int
    batch: int
    R: int
    steps: int

    def along(self, axis: str) -> int:
        """Return what is drawn along an axis.

        Example:
            >>> [Size(4, 2, 1, 8).along(axis) for axis in ("m", "n", "R", "steps")]
            [8, 40, 1, 8]
        """
        n = 2 * (self.d**2 + self.d)
        return {"m": self.d * self.batch, "n": n, "R": self.R, "steps": self.steps}[axis]


class Square(nn.Module):
    """linear -> tanh -> linear, d wide."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.first = nn.Linear(d, d, dtype=DTYPE)
        self.last = nn.Linear(d, d, dtype=DTYPE)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points ``x``."""
        return self.last(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def cost(x: Tensor) -> Tensor:
    """The mean square."""
    return x.square().mean()


def points(size: Size) -> Tensor:
    """Draw where solves start."""
    return torch.randn(size.batch, size.d, dtype=DTYPE)


def rk4(size: Size) -> dict[str, Any]:
    """Return the solver."""
    return {"method": "rk4", "options": {"step_size": 1.0 / size.steps}}


def theorem_1(size: Size, adjoint: Any = "backsolve") -> None:
    """The matrix ODEs: all second derivatives."""
    x0, field = points(size), Square(size.d)
    differential_programming(field, x0, (0.0, 1.0), cost, adjoint=adjoint, **rk4(size))


def proposition_2(size: Size) -> None:
    """The vector ODEs of a terminal curvature of rank R."""
    x0 = points(size)
    y = OuterProducts(torch.randn(size.R, x0.numel(), dtype=DTYPE), torch.ones(size.R, dtype=DTYPE))
    low_rank(Square(size.d), x0, (0.0, 1.0), y, **rk4(size))


def optimizer_step(size: Size) -> None:
    """An iteration of SNOpt with a refresh."""
    block = NeuralODE(Square(size.d), adjoint="backsolve", **rk4(size))
    optimizer = SNOpt(block, lr=0.01, refresh_every=1, refresh_first=1)
    cost(block(points(size))).backward()
    optimizer.step()


def first_order(size: Size) -> None:
    """The gradient by the adjoint ODE."""
    block = NeuralODE(Square(size.d), adjoint="backsolve", **rk4(size))
    cost(block(points(size))).backward()


def product(size: Size, adjoint: Any) -> None:
    """A product of the Hessian with a vector."""
    x0, v = points(size), torch.randn(size.along("n"), dtype=DTYPE)
    field = Square(size.d)
    hessian_vector_product(field, x0, (0.0, 1.0), cost, v, adjoint=adjoint, **rk4(size))


METHODS: dict[str, Callable[[Size], None]] = {
    "Theorem 1": theorem_1,
    "Proposition 2": proposition_2,
    "SNOpt": optimizer_step,
    "first-order adjoint": first_order,
    "Theorem 1, checkpoint": lambda size: theorem_1(size, adjoint="checkpoint"),
    "product, backsolve": lambda size: product(size, adjoint="backsolve"),
    "product, checkpoint": lambda size: product(size, adjoint="checkpoint"),
}

AXES: dict[str, dict[str, list[Size]]] = {
    "m": {
        "Theorem 1": [Size(4, b, 1, 2) for b in (60, 100, 160, 256)],
        "Proposition 2": [Size(8, b, 8, 2) for b in (1000, 2000, 4000, 8000)],
        "SNOpt": [Size(16, b, 1, 2) for b in (8000, 16000, 32000, 64000)],
        "first-order adjoint": [Size(16, b, 1, 2) for b in (8000, 16000, 32000, 64000)],
    },
    "n": {
        "Theorem 1": [Size(d, 2, 1, 2) for d in (12, 16, 20, 26)],
        "Proposition 2": [Size(d, 1, 8, 2) for d in (128, 180, 256, 360)],
        "SNOpt": [Size(d, 2, 1, 2) for d in (300, 420, 600, 800)],
        "first-order adjoint": [Size(d, 2, 1, 2) for d in (400, 560, 800, 1100)],
    },
    "R": {"Proposition 2": [Size(128, 8, R, 2) for R in (4, 8, 16, 32, 64)]},
    "steps": {
        "Theorem 1": [Size(16, 8, 1, s) for s in (2, 8, 32)],
        "Proposition 2": [Size(64, 64, 16, s) for s in (2, 8, 32)],
        "SNOpt": [Size(64, 2000, 1, s) for s in (2, 8, 32)],
        "first-order adjoint": [Size(64, 2000, 1, s) for s in (2, 8, 32)],
        "Theorem 1, checkpoint": [Size(16, 8, 1, s) for s in (2, 8, 32)],
        "product, backsolve": [Size(16, 8000, 1, s) for s in (2, 8, 32)],
        "product, checkpoint": [Size(16, 8000, 1, s) for s in (2, 8, 32)],
    },
}
"""What grows, and for each method the sizes at which what grows outweighs the rest."""


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Fit a straight line through the logarithms and return its slope: the exponent.

    Args:
        xs: what grows.
        ys: what grows with it.

    Example:
        >>> slope([1, 2, 4], [3, 12, 48])
        2.0
    """
    a = [math.log(x) for x in xs]
    b = [math.log(max(y, 1e-3)) for y in ys]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    top = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return top / sum((x - mean_a) ** 2 for x in a)
