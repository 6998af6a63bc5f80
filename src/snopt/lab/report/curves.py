"""Average the records of several seeds into one curve with a band."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from snopt.lab.report.read import Run
from snopt.lab.report.records import STEPS, Floats, evenly

# Points of a curve. A longer record is averaged in this many bins.
MAX_POINTS = 300

IN_WORDS = {
    "cpu_seconds": "CPU seconds",
    "lr": "learning rate",
    "memory_mb": "memory (MB)",
    "nfe_backward": "NFE backward",
    "nfe_forward": "NFE forward",
}


@dataclass(frozen=True)
class Quantity:
    """A quantity that was measured during training.

    Attributes:
        split: ``"training"`` for quantities of every step, else the evaluated split.
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
        iteration: where the seeds are compared.
        seconds: mean training time there.
        mean: mean over the seeds that reached the iteration.
        sd: their standard deviation (n - 1); 0 for one seed.
        low: their minimum.
        high: their maximum.
        below: one deviation below the mean, but not below the lowest seed: no band leaves the
            range of its quantity, such as accuracies up to 1 and losses above 0.
        above: one deviation above the mean, but not above the highest seed.
        count: number of seeds that reached the iteration.
    """

    iteration: Floats
    seconds: Floats
    mean: Floats
    sd: Floats
    low: Floats
    high: Floats
    below: Floats
    above: Floats
    count: NDArray[np.int64]


def quantities(runs: Iterable[Run]) -> list[Quantity]:
    """Return all quantities that any run measured: those of training first, then by split."""
    runs = list(runs)
    splits = dict.fromkeys([STEPS, *(split for run in runs for split in run.records.evals)])
    pairs = [
        (split, name) for split in splits for r in runs for name in r.records.split(split).values
    ]
    return [Quantity(*pair) for pair in dict.fromkeys(pairs)]


def table_of(run: Run, quantity: Quantity) -> Floats:
    """Return a run's record of one quantity as rows (iteration, seconds, value)."""
    return run.records.split(quantity.split).table(quantity.name)


def band(tables: Sequence[Floats], limit: int = MAX_POINTS) -> Band | None:
    r"""Align seeds by iteration, and compute mean and spread.

    Each seed is interpolated linearly between its own records and never extrapolated, so
    ``count`` decreases where a seed has stopped. The time shown for an iteration is

    .. math:: \bar s(i_k) = \sum_{j \le k} \text{mean over seeds of } s(i_j) - s(i_{j-1}),

    the mean time while all seeds run, and still increasing after one has stopped.

    Args:
        tables: one array of rows (iteration, seconds, value) per seed.
        limit: largest number of points of the result.

    Returns:
        the band, or None if no seed has a record.

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
    # Start where all seeds have a record.
    grid = np.unique(np.concatenate([table[:, 0] for table in tables]))
    grid = grid[grid >= max(table[0, 0] for table in tables)]
    grid = grid[evenly(len(grid), limit)]
    alive = np.array([grid <= table[-1, 0] for table in tables])
    seconds = np.array([np.interp(grid, table[:, 0], table[:, 1]) for table in tables])
    values = np.array([np.interp(grid, table[:, 0], table[:, 2]) for table in tables])
    count = alive.sum(axis=0)
    steps = np.where(alive, np.diff(seconds, axis=1, prepend=0), 0).sum(axis=0) / count
    low = np.where(alive, values, np.inf).min(axis=0)
    high = np.where(alive, values, -np.inf).max(axis=0)
    with np.errstate(over="ignore"):  # Squares of a diverging loss.
        mean = np.where(alive, values, 0).sum(axis=0) / count
        squares = np.where(alive, (values - mean) ** 2, 0).sum(axis=0)
        sd = np.sqrt(squares / np.maximum(count - 1, 1))
    return Band(
        iteration=grid,
        seconds=np.cumsum(steps),
        mean=mean,
        sd=sd,
        low=low,
        high=high,
        below=np.maximum(mean - sd, low),
        above=np.minimum(mean + sd, high),
        count=count,
    )


def _bin(table: Floats, tables: Sequence[Floats], limit: int) -> Floats:
    """Average a long record in bins that all seeds share."""
    if max(map(len, tables)) <= limit:
        return table
    first = min(other[0, 0] for other in tables if len(other))
    last = max(other[-1, 0] for other in tables if len(other))
    bins = ((table[:, 0] - first) / (last - first) * limit).astype(int).clip(max=limit - 1)
    sums = np.stack([np.bincount(bins, column) for column in table.T], axis=1)
    counts = np.bincount(bins)
    return (sums / np.maximum(counts, 1)[:, None])[counts > 0]
