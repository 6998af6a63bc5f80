"""What was measured, updated and left out, as numbers."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass

__all__ = ["Counts"]


@dataclass
class Counts:
    """What happened so far; blocks count one by one.

    Attributes:
        iterations: Calls of ``step``.
        updates: Horizons updated.
        skipped: Updates left out, for any reason; the horizon stayed as it was.
        uncalled: Iterations in which no gradient reached a block.
        not_finite: Iterations in which that gradient, the field or the parameters' change was
            not finite.
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
        """Count an event, and warn of its kind the first time only.

        Args:
            name: Which count.
            message: What to say.

        Example:
            >>> counts = Counts(skipped=1)
            >>> counts.note("skipped", "said once already")
            >>> counts.skipped
            2
        """
        value = getattr(self, name) + 1
        setattr(self, name, value)
        if value == 1:
            warnings.warn(
                f"{message}. Later ones are counted in counts.{name}", RuntimeWarning, stacklevel=4
            )
