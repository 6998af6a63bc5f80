"""Interpolation inside a step: every stage is weighted by a polynomial of the position."""

from __future__ import annotations

from torch import Tensor

Row = tuple[float, ...]


def polynomials(rows: tuple[Row, ...], theta: float) -> Row:
    """Evaluate polynomials; ``rows[i][d-1]`` is the coefficient of ``theta**d`` in number ``i``.

    Example:
        >>> polynomials(((1.0, 2.0), (3.0,)), 0.5)
        (1.0, 1.5)
    """
    weights = []
    for row in rows:
        total = 0.0
        for coefficient in reversed(row):
            total = (total + coefficient) * theta
        weights.append(total)
    return tuple(weights)


def linear(b: Row) -> tuple[Row, ...]:
    """Return the straight line between the states at both ends of a step.

    Example:
        >>> linear((0.5, 0.5))
        ((0.5,), (0.5,))
    """
    return tuple((weight,) for weight in b)


def cubic(b: Row) -> tuple[Row, ...]:
    """Return the cubic through the states and slopes at both ends of a step.

    The slope at the end is one additional stage.

    Example:
        >>> polynomials(cubic((0.5, 0.5)), 1.0)
        (0.5, 0.5, 0.0)
    """
    rows = [[0.0, 3.0 * weight, -2.0 * weight] for weight in b]
    rows[0] = [rows[0][0] + 1.0, rows[0][1] - 2.0, rows[0][2] + 1.0]
    rows.append([0.0, -1.0, 1.0])
    return tuple(tuple(row) for row in rows)


def hermite(s: float, h: float, x: Tensor, x1: Tensor, v: Tensor, v1: Tensor) -> Tensor:
    """Evaluate the cubic through two states and slopes at the position ``s`` of a step ``h``.

    Example:
        >>> import torch
        >>> zero, one = torch.zeros(1), torch.ones(1)
        >>> hermite(0.25, 1.0, zero, one, one, one)
        tensor([0.2500])
    """
    return (
        (1 + 2 * s) * (1 - s) ** 2 * x
        + s * s * (3 - 2 * s) * x1
        + h * s * (1 - s) ** 2 * v
        + h * s * s * (s - 1) * v1
    )
