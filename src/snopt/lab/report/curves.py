"""From the records of several seeds to one curve with a band around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from snopt.lab.report.read import Run
from snopt.lab.report.records import Record

Floats = NDArray[np.float64]

# Points of a curve. A longer record is averaged in as many bins of iterations.
MAX_POINTS = 300

# The split under which the records of training steps go.
STEPS = "training"

IN_WORDS = {
    "lr": "learning rate",
    "memory_mb": "memory (MB)",
    "nfe_backward": "NFE backward",
    "nfe_forward": "NFE forward",
}


@dataclass(frozen=True)
class Quantity:
    """Something that was measured over a training.

    Attributes:
        split: ``"training"`` for what was measured at every step, else the evaluated split.
        name: ``"loss"``, ``"accuracy"``, ``"nfe_forward"``, ...
    """

    split: str
    name: str

    def __str__(self) -> str:
        if self.split == STEPS and self.name != "loss":
            return IN_WORDS.get(self.name, self.name)
        return f"{self.split} {self.name}"


@dataclass(frozen=True)
class Band:
    """Mean and spread over seeds, at common iterations.

    Attributes:
        iteration: Where the seeds are compared.
        seconds: Mean training time there.
        mean: Mean over the seeds that got there.
        sd: Their standard deviation (n - 1); 0 for one seed.
        low: Their minimum.
        high: Their maximum.
        count: How many got there.
    """

    iteration: Floats
    seconds: Floats
    mean: Floats
    sd: Floats
    low: Floats
    high: Floats
    count: NDArray[np.int64]


def quantities(runs: Iterable[Run]) -> list[Quantity]:
    """Everything that any of the runs measured.

    Returns:
        What was measured in training first, then by split; each once.
    """
    found: dict[Quantity, None] = {}
    for run in runs:
        for split in (STEPS, *run.records.evals):
            for record in records_of(run, split):
                found.update({Quantity(split, name): None for name in record.values})
    splits = list(dict.fromkeys([STEPS, *(quantity.split for quantity in found)]))
    return sorted(found, key=lambda quantity: splits.index(quantity.split))


def records_of(run: Run, split: str) -> Sequence[Record]:
    """The records of one split, or of the training steps."""
    return run.records.steps if split == STEPS else run.records.evals.get(split, [])


def table_of(run: Run, quantity: Quantity) -> Floats:
    """A run's record of one quantity as rows (iteration, seconds, value).

    Returns:
        An array of shape (records, 3); values that are not finite are left out.
    """
    rows = [
        (record.iteration, record.seconds, record.values[quantity.name])
        for record in records_of(run, quantity.split)
        if quantity.name in record.values
    ]
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return table[np.isfinite(table).all(axis=1)]


def band(tables: Sequence[Floats], limit: int = MAX_POINTS) -> Band | None:
    r"""Align seeds by iteration, and take mean and spread.

    Each seed is interpolated linearly between its own records and never beyond them, so that
    ``count`` falls where a seed has stopped. The time drawn for an iteration is

    .. math:: \bar s(i_k) = \sum_{j \le k} \text{mean over seeds of } s(i_j) - s(i_{j-1}),

    the mean time while all seeds run, and still increasing after one has stopped.

    Args:
        tables: One array of rows (iteration, seconds, value) per seed.
        limit: Most points of the result.

    Returns:
        The band, or None if no seed has a record.

    Example:
        >>> import numpy as np
        >>> seeds = [np.array([[0, 0.0, 1.0], [2, 4.0, 3.0]]), np.array([[0, 0.0, 3.0]])]
        >>> both = band(seeds)
        >>> both.mean, both.count, both.seconds
        (array([2., 3.]), array([2, 1]), array([0., 4.]))
    """
    tables = [_bin(table, tables, limit) for table in tables if len(table)]
    if not tables:
        return None
    # Before the latest beginning some seeds are not there yet; records start together otherwise.
    grid = np.unique(np.concatenate([table[:, 0] for table in tables]))
    grid = grid[grid >= max(table[0, 0] for table in tables)]
    grid = grid[np.unique(np.linspace(0, len(grid) - 1, min(limit, len(grid))).round().astype(int))]
    alive = np.array([grid <= table[-1, 0] for table in tables])
    seconds = np.array([np.interp(grid, table[:, 0], table[:, 1]) for table in tables])
    values = np.array([np.interp(grid, table[:, 0], table[:, 2]) for table in tables])
    count = alive.sum(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):  # A diverging loss may be near overflow.
        mean = np.where(alive, values, 0).sum(axis=0) / count
        squares = np.where(alive, (values - mean) ** 2, 0).sum(axis=0)
    steps = np.where(alive, np.diff(seconds, axis=1, prepend=0), 0).sum(axis=0) / count
    return Band(
        iteration=grid,
        seconds=np.cumsum(steps),
        mean=mean,
        sd=np.sqrt(squares / np.maximum(count - 1, 1)),
        low=np.where(alive, values, np.inf).min(axis=0),
        high=np.where(alive, values, -np.inf).max(axis=0),
        count=count,
    )


def _bin(table: Floats, tables: Sequence[Floats], limit: int) -> Floats:
    """Average a long record in bins that all seeds share."""
    if max(map(len, tables)) <= limit:
        return table
    first = min(other[0, 0] for other in tables if len(other))
    last = max(other[-1, 0] for other in tables if len(other))
    bins = ((table[:, 0] - first) / (last - first) * limit).astype(int).clip(max=limit - 1)
    occupied, index = np.unique(bins, return_inverse=True)
    sums = np.zeros((len(occupied), 3))
    np.add.at(sums, index, table)
    return sums / np.bincount(index)[:, None]
