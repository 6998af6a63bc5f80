"""A table as data, and as Markdown or plain text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Cell: TypeAlias = str | float | None


@dataclass(frozen=True)
class Table:
    """A table as data.

    Attributes:
        rows: cells; numbers are rounded when they are written, None is a dash.

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
        """Return the text of every cell."""
        return [[cell_text(cell) for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """Return the table in Markdown, without its caption."""
        return markdown(self.columns, self.texts(), numbers=False)


def markdown(columns: Iterable[str], rows: Iterable[Iterable[str]], *, numbers: bool = True) -> str:
    """Return a table in Markdown; with ``numbers`` all columns but the first are right-aligned."""
    columns = list(columns)
    rule = ["---", *["---:" if numbers else "---"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [columns, rule, *rows])


def cell_text(cell: Cell) -> str:
    """Return the text of a cell, with three digits of a number."""
    return cell if isinstance(cell, str) else number_text(cell, 3)


def number_text(value: float | None, digits: int = 4) -> str:
    """Format a number with so many significant digits; None and NaN are a dash.

    Example:
        >>> [number_text(x) for x in (0.98765, 1234.5, 0.0000123, 20000.0, None)]
        ['0.9877', '1234', '1.23e-05', '20000', '-']
    """
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"
