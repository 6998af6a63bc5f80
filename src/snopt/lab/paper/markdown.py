"""Results as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable

from snopt.lab.config import Scale
from snopt.lab.paper.item import Cell, Item, Result, Table

__all__ = ["cell_text", "result_markdown", "table_markdown"]


def result_markdown(item: Item, scale: Scale, result: Result, *, level: int = 2) -> str:
    """Write an item's tables and notes, with the command that repeats them.

    Args:
        item: the item.
        scale: the scale it ran at.
        result: what it found.
        level: of the heading.
    """
    names = ", ".join(f"`{label}`" for label in item.labels)
    origin = f"The paper's {names}" if names else "Beyond the paper"
    parts = [
        f"{'#' * level} {item.title}",
        f"{origin}. `snopt paper {item.id} --scale {scale}`",
    ]
    for table in result.tables:
        parts += [f"{table.caption}", table_markdown(table)]
    if result.notes:
        parts.append("\n".join(f"- {note}" for note in result.notes))
    return "\n\n".join(parts) + "\n"


def table_markdown(table: Table) -> str:
    """Write a table.

    Example:
        >>> table = Table("", ["method", "accuracy"], [["adam", 97.123], ["sgd", None]])
        >>> print(table_markdown(table))
        | method | accuracy |
        |---|---|
        | adam | 97.1 |
        | sgd | - |
    """
    lines = [table.columns, ["---"] * len(table.columns)]
    body = [[cell_text(cell) for cell in row] for row in table.rows]
    return "\n".join([_line(lines[0]), f"|{'|'.join(lines[1])}|", *map(_line, body)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


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
