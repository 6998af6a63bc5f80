"""How the storage of second-order methods grows (``table:memory-comp``).

The field is ``linear -> tanh -> linear`` on d dimensions for a batch of points, so that
m = batch * d and n = 2 (d² + d). Double precision, rk4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import linear_regression
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snopt.adjoint import NeuralODE
from snopt.optim import SNOpt
from snopt.second_order.low_rank import low_rank
from snopt.second_order.matrix_odes import differential_programming
from snopt.second_order.outer_products import OuterProducts
from snopt.second_order.products import hessian_vector_product

DTYPE = torch.float64


class Size(NamedTuple):
    """The size of a problem.

    Attributes:
        d: dimension of a point.
        batch: number of points.
        R: rank of the terminal curvature.
        steps: number of steps of the solve.
    """

    d: int
    batch: int
    R: int
    steps: int

    def along(self, axis: str) -> int:
        """Return the coordinate along an axis.

        Example:
            >>> [Size(4, 2, 1, 8).along(axis) for axis in ("m", "n", "R", "steps")]
            [8, 40, 1, 8]
        """
        n = 2 * (self.d**2 + self.d)
        return {"m": self.d * self.batch, "n": n, "R": self.R, "steps": self.steps}[axis]


class Square(nn.Module):
    """linear -> tanh -> linear of width d."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.first = nn.Linear(d, d, dtype=DTYPE)
        self.last = nn.Linear(d, d, dtype=DTYPE)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points ``x``."""
        return self.last(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def cost(x: Tensor) -> Tensor:
    """Return the mean square."""
    return x.square().mean()


def _problem(size: Size) -> tuple[Square, Tensor, tuple[float, float]]:
    return Square(size.d), torch.randn(size.batch, size.d, dtype=DTYPE), (0.0, 1.0)


def _rk4(size: Size) -> dict[str, Any]:
    return {"method": "rk4", "options": {"step_size": 1.0 / size.steps}}


def theorem_1(size: Size, adjoint: str = "backsolve") -> None:
    """Solve the matrix ODEs of Theorem 1."""
    differential_programming(*_problem(size), cost, adjoint=adjoint, **_rk4(size))


def proposition_2(size: Size) -> None:
    """Solve the vector ODEs of Proposition 2 with a terminal curvature of rank R."""
    field, x0, times = _problem(size)
    y = OuterProducts(torch.randn(size.R, x0.numel(), dtype=DTYPE), torch.ones(size.R, dtype=DTYPE))
    low_rank(field, x0, times, y, **_rk4(size))


def first_order(size: Size, *, update: bool = False) -> None:
    """Compute the gradient by the adjoint ODE; with ``update`` in an iteration of SNOpt."""
    field, x0, _ = _problem(size)
    block = NeuralODE(field, adjoint="backsolve", **_rk4(size))
    optimizer = SNOpt(block, lr=0.01, refresh_every=1, refresh_first=1) if update else None
    cost(block(x0)).backward()
    if optimizer:
        optimizer.step()


def product(size: Size, adjoint: str) -> None:
    """Compute a Hessian-vector product."""
    v = torch.randn(size.along("n"), dtype=DTYPE)
    hessian_vector_product(*_problem(size), cost, v, adjoint=adjoint, **_rk4(size))


METHODS: dict[str, Callable[[Size], None]] = {
    "Theorem 1": theorem_1,
    "Proposition 2": proposition_2,
    "SNOpt": partial(first_order, update=True),
    "first-order adjoint": first_order,
    "Theorem 1, checkpoint": partial(theorem_1, adjoint="checkpoint"),
    "product, backsolve": partial(product, adjoint="backsolve"),
    "product, checkpoint": partial(product, adjoint="checkpoint"),
}

PAPER = ("Theorem 1", "Proposition 2", "SNOpt", "first-order adjoint")
"""Methods of the paper's table."""
AXES: dict[str, dict[str, list[Size]]] = {
    "m": {
        "Theorem 1": [Size(4, b, 1, 2) for b in (60, 100, 160, 256)],
        "Proposition 2": [Size(8, b, 8, 2) for b in (1000, 2000, 4000, 8000)],
        **{of: [Size(16, b, 1, 2) for b in (8000, 16000, 32000, 64000)] for of in PAPER[2:]},
    },
    "n": {
        "Theorem 1": [Size(d, 2, 1, 2) for d in (12, 16, 20, 26)],
        "Proposition 2": [Size(d, 1, 8, 2) for d in (128, 180, 256, 360)],
        "SNOpt": [Size(d, 2, 1, 2) for d in (300, 420, 600, 800)],
        "first-order adjoint": [Size(d, 2, 1, 2) for d in (400, 560, 800, 1100)],
    },
    "R": {"Proposition 2": [Size(128, 8, R, 2) for R in (4, 8, 16, 32, 64)]},
    "steps": {
        method: [Size(d, batch, R, s) for s in (2, 8, 32)]
        for method, (d, batch, R) in {
            "Theorem 1": (16, 8, 1),
            "Proposition 2": (64, 64, 16),
            "SNOpt": (64, 2000, 1),
            "first-order adjoint": (64, 2000, 1),
            "Theorem 1, checkpoint": (16, 8, 1),
            "product, backsolve": (16, 8000, 1),
            "product, checkpoint": (16, 8000, 1),
        }.items()
    },
}
"""For each axis and method the sizes at which that axis dominates the storage."""


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the exponent of a power law: the slope of a line through the logarithms.

    Example:
        >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
        2.0
    """
    logs = [math.log(max(y, 1e-3)) for y in ys]
    return linear_regression([math.log(x) for x in xs], logs).slope
