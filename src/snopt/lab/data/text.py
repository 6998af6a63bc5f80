"""Parsing and checking of numbers in text files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from snopt.lab.data.errors import DataCorrupted

#: Lines with their numbers.
Lines: TypeAlias = list[tuple[int, str]]
#: The largest magnitude of a value. Its square must fit in float32, or a variance would overflow.
LARGEST = 1e18


def filled(lines: Iterable[str], first: int = 1) -> Lines:
    """Number the lines, and drop those that are blank.

    Args:
        lines: the lines.
        first: number of the first one.

    Example:
        >>> filled(["a", " ", "b"])
        [(1, 'a'), (3, 'b')]
    """
    return [(number, line) for number, line in enumerate(lines, first) if line.strip()]


def parse_rows(
    lines: Lines, columns: int, path: Path, separator: str | None = None
) -> NDArray[np.float64]:
    """Parse rows of numbers.

    Args:
        lines: the rows, with their line numbers for the error.
        columns: numbers per row.
        path: the source file, for the error message.
        separator: separator of numbers; None for white space.

    Returns:
        an array ``[len(lines), columns]``.

    Raises:
        DataCorrupted: there are no rows, a row has another number of columns, or something in
            it is not a number of magnitude up to `LARGEST`.

    Example:
        >>> parse_rows([(1, "1 2.5"), (2, "3 4")], 2, Path("file"))
        array([[1. , 2.5],
               [3. , 4. ]])
    """
    if not lines:
        raise DataCorrupted(path, "it has no data")
    table = _parse([row for _, row in lines], columns, separator)
    if table is not None:
        return table
    number, bad = next(pair for pair in lines if _parse([pair[1]], columns, separator) is None)
    words = bad.split(separator)
    if len(words) != columns:
        reason = f"it has {len(words)} numbers instead of {columns}"
    else:
        word = next((w for w in words if _parse([w], 1, separator) is None), bad)
        reason = f"{word[:30]!r} is not a number between -{LARGEST:g} and {LARGEST:g}"
    raise DataCorrupted(path, reason, line=number)


def _parse(rows: Sequence[str], columns: int, separator: str | None) -> NDArray[np.float64] | None:
    """Return the table if it has the right shape and its values are usable."""
    if not any(row.strip() for row in rows):  # NumPy would warn
        return None
    try:
        table = np.loadtxt(rows, delimiter=separator, comments=None, ndmin=2)
    except ValueError:
        return None
    return table if table.shape == (len(rows), columns) and _usable(table).all() else None


def _usable(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark values that are finite and not too large."""
    return np.abs(values) <= LARGEST


def check_table(table: NDArray[np.float64], path: Path) -> NDArray[np.float64]:
    """Return the table if all its values are finite and of magnitude up to `LARGEST`."""
    if not (usable := _usable(table)).all():
        row, column = np.argwhere(~usable)[0]
        raise DataCorrupted(path, f"row {row} has the value {table[row, column]}")
    return table
