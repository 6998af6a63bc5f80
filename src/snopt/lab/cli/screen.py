"""Output of the commands: tables and errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["complain", "print_table", "short"]

SCREEN = 20
"""Lines of an error message that fit on one screen."""


WIDTH = 80
"""Columns of a terminal that every table fits into."""


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns of numbers are aligned to the right.

    Where it would be wider than a terminal, every row is printed as lines of its own.

    Example:
        >>> print_table(["optimizer", "accuracy"], [["snopt", "0.98"], ["adam", "0.9"]])
        optimizer  accuracy
        snopt          0.98
        adam            0.9
    """
    lines = [header, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header))]
    if sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        for row in rows:
            print(row[0])
            for name, cell in zip(header[1:], row[1:], strict=True):
                print(f"  {name}: {cell}")
        return
    numbers = [all(_is_number(row[k]) for row in rows) for k in range(len(header))]
    for line in lines:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numbers, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    try:
        float("0" if cell == "-" else cell)
    except ValueError:
        return False
    return True


def short(value: float | None) -> str:
    """Format a number for a table; None is a dash.

    Example:
        >>> short(0.97654321), short(None), short(1234567.0)
        ('0.9765', '-', '1.235e+06')
    """
    return "-" if value is None else f"{value:.4g}"


def complain(error: BaseException) -> None:
    """Print an error, at most one screen of it."""
    lines = f"snopt: {str(error).strip() or type(error).__name__}".splitlines()
    if len(lines) > SCREEN:
        lines = [*lines[: SCREEN - 1], f"... and {len(lines) - SCREEN + 1} more lines"]
    print("\n".join(lines), file=sys.stderr)
    print("(--debug shows the traceback)", file=sys.stderr)
