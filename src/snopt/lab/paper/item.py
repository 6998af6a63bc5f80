"""What a table or figure is made of: jobs that leave records, and a result read off them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from snopt.lab.config import Scale
from snopt.lab.table import Cell, Table
from snopt.lab.train import Listener

__all__ = ["Cell", "Draw", "Item", "Job", "Result", "Space", "Table", "Watch"]

Watch: TypeAlias = Callable[[Path], Sequence[Listener]]


@dataclass(frozen=True)
class Space:
    """Where the records of one scale lie.

    Runs are shared: two items that need the same training find it in the same folder.

    Attributes:
        root: parent of all scales, ``out/paper`` by default.
        scale: ``"smoke"``, ``"cpu"`` or ``"full"``.
        tasks: look at these data sets only; at all that an item has if not given.
    """

    root: Path
    scale: Scale
    tasks: tuple[str, ...] = ()

    def among(self, tasks: Iterable[str]) -> list[str]:
        """Return those of an item's data sets that are to be looked at."""
        return [task for task in tasks if not self.tasks or task in self.tasks]

    def run(self, task: str, arm: str, seed: int) -> Path:
        """Return the folder of a training."""
        return self.root / self.scale / "runs" / task / f"{arm}-seed{seed}"

    def measurement(self, name: str) -> Path:
        """Return the folder of a measurement."""
        return self.root / self.scale / "measured" / name

    def output(self, item: str) -> Path:
        """Return the folder of an item's table and figure."""
        return self.root / self.scale / "items" / item


class Job(Protocol):
    """Something to compute, once: a training or a measurement.

    Attributes:
        label: what to call it on the screen.
        folder: where its record goes; jobs with the same folder are the same.
        ready: False if other jobs have to be done before it is known what it is.
        size: how long it is, in units of its kind.
        kinds: what else is likely to take as long, from the most alike to the least.
    """

    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def folder(self) -> Path: ...  # noqa: D102
    @property
    def ready(self) -> bool: ...  # noqa: D102
    @property
    def size(self) -> float: ...  # noqa: D102
    @property
    def kinds(self) -> tuple[str, ...]: ...  # noqa: D102

    def spent(self) -> float | None:
        """Return the seconds that its record took; None if it is not known."""
        ...

    def done(self) -> bool:
        """Tell whether its record is complete."""
        ...

    def prepare(self) -> None:
        """Set a stale record aside; raise FolderInUse if another process is at it."""
        ...

    def do(self, watch: Watch) -> None:
        """Compute it, or go on where an earlier process stopped.

        Args:
            watch: makes the listeners of a run folder.
        """
        ...


@dataclass(frozen=True)
class Result:
    """What an item found.

    Attributes:
        tables: beside the paper's values where there are such.
        notes: what a reader has to know: scale, cuts, parts of data, who wins and why.
        curves: what the figure is drawn from, as plain numbers.
    """

    tables: list[Table]
    notes: list[str] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)


Draw: TypeAlias = Callable[[Any, Result], None]
"""Draws a result into a matplotlib figure."""


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper, or several that come of the same computation.

    Attributes:
        id: what it is called on the command line.
        labels: its labels in the paper's source, the tables' and figures' own names; none if the
            paper has nothing of the kind.
        title: what it shows.
        jobs: lists what is to be computed, as far as the records so far tell; runs whose rate is
            still to be chosen are listed too, as not ready.
        result: reads the records, when all jobs are done.
        draw: draws a result into a matplotlib figure; None if there is nothing to draw.
    """

    id: str
    labels: tuple[str, ...]
    title: str
    jobs: Callable[[Space], list[Job]]
    result: Callable[[Space], Result]
    draw: Draw | None = None

    @property
    def origin(self) -> str:
        """Where in the paper it is from."""
        return ", ".join(self.labels) or "beyond the paper"
