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
    """Return the text of a cell, with three digits of a number.

    Example:
        >>> cell_text(0.012345), cell_text(97.123), cell_text(float("nan")), cell_text(1234.0)
        ('0.0123', '97.1', '-', '1234')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.0f}" if 1000 <= abs(cell) < 1e6 else f"{cell:.3g}"


def short(value: float | None) -> str:
    """Format a number with four digits; None is a dash.

    Example:
        >>> short(0.97654321), short(None), short(1234567.0)
        ('0.9765', '-', '1.235e+06')
    """
    return "-" if value is None else f"{value:.4g}"
