"""Counts of updates and skipped updates."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass

__all__ = ["Counts"]


@dataclass
class Counts:
    """Events so far, counted per block.

    Attributes:
        iterations: calls of ``step``.
        updates: updates of horizons.
        skipped: skipped updates; the horizon did not change.
        uncalled: iterations in which no gradient reached a block.
        not_finite: iterations in which the gradient, the field or the parameters' change was not
            finite.
    """

    iterations: int = 0
    updates: int = 0
    skipped: int = 0
    uncalled: int = 0
    not_finite: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts as plain numbers."""
        return asdict(self)

    def note(self, name: str, message: str) -> None:
        """Count an event under ``name``, and warn the first time only.

        Example:
            >>> counts = Counts(skipped=1)
            >>> counts.note("skipped", "warned once already")
            >>> counts.skipped
            2
        """
        value = getattr(self, name) + 1
        setattr(self, name, value)
        if value == 1:
            warnings.warn(
                f"{message}. Later ones are counted in counts.{name}", RuntimeWarning, stacklevel=4
            )
