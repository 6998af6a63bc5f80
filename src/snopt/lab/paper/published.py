"""The values that the paper reports, as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from snopt.base.errors import unknown

__all__ = ["Published", "PublishedTable", "published"]


@dataclass(frozen=True)
class Published:
    """One value.

    Attributes:
        row: the method, or what else names the row.
        column: the data set, or what else names the column.
        value: the value.
        spread: its deviation, if the paper gives one.
    """

    row: str
    column: str
    value: float
    spread: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper.

    Attributes:
        label: its label in the paper's source.
        number: its number in the paper, counted in the source.
        caption: what it shows, in our words.
        unit: of its values.
        values: all of them.
    """

    label: str
    number: int
    caption: str
    unit: str
    values: tuple[Published, ...]

    def value(self, row: str, column: str) -> Published | None:
        """Return one value, None if the table has none there."""
        return next((v for v in self.values if (v.row, v.column) == (row, column)), None)

    def text(self, row: str, column: str) -> str:
        """Write one value with its deviation; a dash for none.

        Example:
            >>> published("table:accu-bar").text("adam", "mnist")
            '98.83 ± 0.18'
        """
        found = self.value(row, column)
        if found is None:
            return "-"
        spread = "" if found.spread is None else f" ± {found.spread:g}"
        return f"{found.value:g}{spread}"


@cache
def _tables() -> dict[str, PublishedTable]:
    content = json.loads(files("snopt.lab.paper").joinpath("published.json").read_text("utf-8"))
    return {
        label: PublishedTable(
            label, **{**table, "values": tuple(Published(*value) for value in table["values"])}
        )
        for label, table in content.items()
    }


def published(label: str) -> PublishedTable:
    """Return a table of the paper.

    Args:
        label: its label in the paper's source.

    Example:
        >>> published("table:runtime").value("adam", "mnist").value
        0.15
    """
    if label not in _tables():
        raise unknown("table of the paper", label, _tables())
    return _tables()[label]
