"""Interpolation inside a step, as polynomials that weigh its stages."""

from __future__ import annotations

Row = tuple[float, ...]


def polynomials(rows: tuple[Row, ...], theta: float) -> Row:
    """The values of polynomials without a constant term.

    Args:
        rows: ``rows[i][d-1]`` is the coefficient of ``theta**d`` in polynomial ``i``.
        theta: Where.

    Returns:
        One value a polynomial.

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
    """The straight line between the states at both ends of a step.

    Args:
        b: Weights of the stages in the new state.

    Returns:
        One row a stage.

    Example:
        >>> linear((0.5, 0.5))
        ((0.5,), (0.5,))
    """
    return tuple((weight,) for weight in b)


def cubic(b: Row) -> tuple[Row, ...]:
    """The cubic through the states and slopes at both ends of a step.

    Args:
        b: Weights of the stages in the new state.

    Returns:
        One row a stage, the slope at the end as one stage more.

    Example:
        >>> polynomials(cubic((0.5, 0.5)), 1.0)
        (0.5, 0.5, 0.0)
    """
    rows = [[0.0, 3.0 * weight, -2.0 * weight] for weight in b]
    rows[0] = [rows[0][0] + 1.0, rows[0][1] - 2.0, rows[0][2] + 1.0]
    rows.append([0.0, -1.0, 1.0])
    return tuple(tuple(row) for row in rows)
