"""A table as data, with one way to write its numbers and one way into Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Cell", "Table", "cell_text", "markdown"]

Cell: TypeAlias = str | float | None


@dataclass(frozen=True)
class Table:
    """A table as data.

    Attributes:
        caption: what it shows.
        columns: names of the columns.
        rows: cells; a number is rounded when it is written, None is a dash.

    Example:
        >>> table = Table("", ["method", "accuracy"], [["adam", 97.123], ["sgd", None]])
        >>> print(table.markdown())
        | method | accuracy |
        | --- | --- |
        | adam | 97.1 |
        | sgd | - |
    """

    caption: str
    columns: list[str]
    rows: list[list[Cell]]

    def texts(self) -> list[list[str]]:
        """Return the cells as they are written."""
        return [[cell_text(cell) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """Write columns and rows."""
        return markdown(self.columns, self.texts(), numbers=False)


def markdown(columns: Iterable[str], rows: Iterable[Iterable[str]], *, numbers: bool = True) -> str:
    """Lay out a table in Markdown; with ``numbers`` all columns but the first to the right."""
    columns = list(columns)
    rule = ["---", *["---:" if numbers else "---"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, rule, *rows])


def cell_text(cell: Cell) -> str:
    """Write a cell: three digits of a number.

    Example:
        >>> cell_text(0.012345), cell_text(97.123), cell_text(float("nan")), cell_text(1234.0)
        ('0.0123', '97.1', '-', '1234')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.0f}" if 1000 <= abs(cell) < 1e6 else f"{cell:.3g}"
