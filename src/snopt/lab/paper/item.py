"""What a table or figure consists of: jobs that write records, and a result read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from snopt.lab.config import Scale
from snopt.lab.paper.jobs import Job, Measurement
from snopt.lab.table import Cell as Cell
from snopt.lab.table import Table as Table


@dataclass(frozen=True)
class Space:
    """Where the records of one scale are.

    Runs are shared: two items that need the same training find it in the same folder.

    Attributes:
        root: parent folder of all scales, ``out/paper`` by default.
        scale: ``"smoke"``, ``"cpu"`` or ``"full"``.
        tasks: restrict items to these data sets; all if empty.
    """

    root: Path
    scale: Scale
    tasks: tuple[str, ...] = ()

    def among(
        self, tasks: Iterable[str], cpu: Iterable[str] = (), smoke: Iterable[str] = ()
    ) -> list[str]:
        """Return the selected ones of an item's data sets.

        If none are selected: those for scale ``cpu``, which are also for ``smoke``, those for
        ``smoke``, or all.
        """
        if self.tasks:
            return [task for task in tasks if task in self.tasks]
        few = {"cpu": cpu, "smoke": smoke or cpu}
        return list(few.get(self.scale) or tasks)

    def run(self, task: str, arm: str, seed: int) -> Path:
        """Return the folder of a training."""
        return self.root / self.scale / "runs" / task / f"{arm}-seed{seed}"

    def measurement(self, name: str) -> Path:
        """Return the folder of a measurement."""
        return self.root / self.scale / "measured" / name

    def output(self, item: str) -> Path:
        """Return the folder of an item's table and figure."""
        return self.root / self.scale / "items" / item


@dataclass(frozen=True)
class Result:
    """What an item found.

    Attributes:
        tables: measured values, beside the paper's where it has them.
        notes: scale, reductions, parts of data and how it was measured.
        curves: the numbers behind the figure.
    """

    tables: list[Table]
    notes: list[str] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)


Draw: TypeAlias = Callable[[Any, Result], None]
"""Draws a result into a matplotlib figure."""


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper, or several that come from the same computation.

    Attributes:
        id: name on the command line.
        labels: labels of its tables and figures in the paper's source; empty if the paper has none.
        title: what it shows.
        jobs: lists what has to be computed, as far as the records so far determine it; runs whose
            learning rate is not chosen yet are listed as not ready.
        result: reads the records, when all jobs are done; see ``partial``.
        draw: draws a result into a matplotlib figure; None if there is no figure.
        shown: whether the page of all results shows it; its JSON file is written anyway.
        caption: how to read the figure.
        partial: whether there is a result as soon as some jobs are done.
    """

    id: str
    labels: tuple[str, ...]
    title: str
    jobs: Callable[[Space], list[Job]]
    result: Callable[[Space], Result]
    draw: Draw | None = None
    shown: bool = True
    caption: str = ""
    partial: bool = False

    @property
    def origin(self) -> str:
        """Where in the paper it comes from."""
        return ", ".join(self.labels) or "beyond the paper"


def measured_item(
    id: str,
    labels: tuple[str, ...],
    title: str,
    jobs: Callable[[Space], Mapping[Any, Measurement]],
    result: Callable[[Space, dict[Any, dict[str, Any]]], Result],
    draw: Draw | None = None,
    caption: str = "",
) -> Item:
    """Create an item whose result is a function of its measurements, by the same keys."""

    def read(space: Space) -> Result:
        return result(space, {key: job.read() for key, job in jobs(space).items()})

    return Item(id, labels, title, lambda s: list(jobs(s).values()), read, draw, caption=caption)
