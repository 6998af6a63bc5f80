"""The values that the paper reports, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from snopt.base.errors import unknown

__all__ = ["PublishedTable", "published"]


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper.

    Attributes:
        number: its number in the paper, counted in the source.
        values: by row (mostly the method) and column (mostly the data set) the value, and its
            deviation if the paper gives one.
    """

    number: int
    values: dict[tuple[str, str], tuple[float, float | None]]

    def value(self, row: str, column: str) -> float | None:
        """Return one value, None if the table has none there."""
        return self.values.get((row, column), (None, None))[0]

    def text(self, row: str, column: str) -> str:
        """Write one value with its deviation; a dash for none.

        Example:
            >>> published("table:accu-bar").text("adam", "mnist")
            '98.83 ± 0.18'
        """
        if (row, column) not in self.values:
            return "-"
        value, deviation = self.values[row, column]
        return f"{value:g}" if deviation is None else f"{value:g} ± {deviation:g}"


@cache
def _tables() -> dict[str, PublishedTable]:
    content = json.loads(files("snopt.lab.paper").joinpath("published.json").read_text("utf-8"))
    return {
        label: PublishedTable(
            table["number"],
            {(row, column): (value, sd) for row, column, value, sd in table["values"]},
        )
        for label, table in content.items()
    }


def published(label: str) -> PublishedTable:
    """Return a table of the paper.

    Args:
        label: its label in the paper's source.

    Example:
        >>> published("table:runtime").value("adam", "mnist")
        0.15
    """
    if label not in _tables():
        raise unknown("table of the paper", label, _tables())
    return _tables()[label]
