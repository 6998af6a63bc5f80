"""Output of the commands: tables and errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence

SCREEN = 20  # Lines of an error message.
WIDTH = 80  # Columns of a table.


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with right-aligned numbers; a table that is too wide is printed as lines.

    Example:
        >>> print_table(["optimizer", "accuracy"], [["snopt", "0.98"], ["adam", "0.9"]])
        optimizer  accuracy
        snopt          0.98
        adam            0.9
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
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


def complain(error: BaseException) -> None:
    """Print an error, at most one screen of it."""
    lines = f"snopt: {str(error).strip() or type(error).__name__}".splitlines()
    if len(lines) > SCREEN:
        lines = [*lines[: SCREEN - 1], f"... and {len(lines) - SCREEN + 1} more lines"]
    print("\n".join(lines), file=sys.stderr)
    print("(--debug shows the traceback)", file=sys.stderr)
