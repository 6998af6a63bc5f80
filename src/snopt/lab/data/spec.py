"""Loaded data sets: tensors, their description, and batches.

Shapes. ``B`` examples, ``C`` channels, ``L`` observations of the longest series, ``D`` columns:

    image   x [B, C, H, W]
    series  x [B, L, C], padded beyond ``lengths``; times [L]; lengths [B]
    table   x [B, D]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from snopt.base.errors import unknown

__all__ = ["Batch", "Completeness", "Dataset", "Kind", "Preprocessing", "Spec", "Splits"]

#: What one example is.
Kind: TypeAlias = Literal["image", "series", "table"]
#: How much of the public data set was found (docs/data.md).
Completeness: TypeAlias = Literal["whole", "part", "stand-in", "generated"]
#: The conventions of the authors' loaders, or the set's own statistics and test split.
Preprocessing: TypeAlias = Literal["paper", "standard"]


@dataclass(frozen=True)
class Spec:
    """Description of a data set.

    Attributes:
        name: as given to `snopt.lab.data.load`.
        kind: what one example is.
        shape: of one example.
        classes: number of classes, or None when there are no labels.
        longest: L of a series, else None.
        completeness: how much of the public data set this is.
        note: one sentence on its source and what is missing.
        preprocessing: the conventions it follows.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    classes: int | None
    longest: int | None
    completeness: Completeness
    note: str
    preprocessing: Preprocessing = "standard"

    def __post_init__(self) -> None:
        """Refuse words outside the vocabulary."""
        for name, valid in _WORDS.items():
            if getattr(self, name) not in valid:
                raise unknown(name, getattr(self, name), valid)


_WORDS: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "completeness": get_args(Completeness),
    "preprocessing": get_args(Preprocessing),
}


@dataclass(frozen=True, repr=False)
class Batch:
    """Examples as tensors.

    Attributes:
        x: inputs, float32, with the shapes at the top of this module.
        y: classes, int64 ``[B]``, or None.
        lengths: number of observations of each series, int64 ``[B]``; None unless series.
        times: times of the observations, float32 ``[L]``, for all series; None unless series.
        mask: bool ``[B, L, C]``, True where a value was observed; None when every value within
            ``lengths`` was.

    Example:
        >>> batch = Batch(torch.zeros(4, 2), y=torch.arange(4))
        >>> batch.select(torch.tensor([3, 0]))
        Batch(x=[2, 2], y=[2])
    """

    x: Tensor
    y: Tensor | None = None
    lengths: Tensor | None = None
    times: Tensor | None = None
    mask: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        """Show only the shapes."""
        present = {name: value for name, value in vars(self).items() if value is not None}
        return f"Batch({', '.join(f'{n}={list(v.shape)}' for n, v in present.items())})"

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the examples on another device."""
        batch = self._rows(lambda rows: rows.to(device, non_blocking=non_blocking))
        times = None if self.times is None else self.times.to(device, non_blocking=non_blocking)
        return replace(batch, times=times)

    def select(self, indices: Tensor) -> Batch:
        """Return a copy of the examples at ``indices``."""
        return self._rows(lambda rows: rows.index_select(0, indices))

    def slice(self, start: int, stop: int) -> Batch:
        """Return a view of the examples from ``start`` to ``stop``."""
        return self._rows(lambda rows: rows[start:stop])

    def joined(self, other: Batch) -> Batch:
        """Return these examples followed by others of the same data set."""
        pair = (self, other)

        def both(name: str) -> Tensor | None:
            rows = [getattr(each, name) for each in pair]
            if name == "mask" and any(mask is not None for mask in rows):
                rows = [torch.ones_like(b.x).bool() if b.mask is None else b.mask for b in pair]
            return None if rows[0] is None else torch.cat(rows)

        return Batch(torch.cat([self.x, other.x]), both("y"), both("lengths"), self.times,
                     both("mask"))  # fmt: skip

    def _rows(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Apply ``change`` to every tensor with one row per example: all but the times."""

        def on(rows: Tensor | None) -> Tensor | None:
            return None if rows is None else change(rows)

        return Batch(change(self.x), on(self.y), on(self.lengths), self.times, on(self.mask))


@dataclass(frozen=True)
class Dataset:
    """One split, held in memory.

    Attributes:
        tensors: all examples.
        spec: what they are.

    Example:
        >>> spec = Spec("points", "table", (2,), None, None, "generated", "Three points.")
        >>> points = Dataset(Batch(torch.arange(6.0).reshape(3, 2)), spec)
        >>> len(points), points[-1].x
        (3, tensor([[4., 5.]]))
        >>> [len(batch) for batch in points.batches(2)]
        [2, 1]
    """

    tensors: Batch
    spec: Spec

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: int | slice) -> Batch:
        """Return one example as a batch of one, or the examples of a slice."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self.tensors.slice(start, stop)
            return self.batch(range(start, stop, step))
        row = range(len(self))[index]  # negative indices, and IndexError beyond the ends
        return self.tensors.slice(row, row + 1)

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the examples, each as a batch of one."""
        return (self[row] for row in range(len(self)))

    def batch(self, indices: Tensor | Sequence[int]) -> Batch:
        """Return the examples at ``indices``, in that order."""
        rows = torch.as_tensor(indices, dtype=torch.int64, device=self.tensors.x.device)
        return self.tensors.select(rows)

    def batches(
        self, batch_size: int, *, generator: torch.Generator | None = None, drop_last: bool = False
    ) -> Iterator[Batch]:
        """Iterate over the examples once.

        Args:
            batch_size: examples per batch; the last batch may be smaller.
            generator: shuffles the examples; if None, they come in order and are not copied.
            drop_last: skip the last batch if it is smaller.

        Yields:
            Each batch.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        stop = len(self) - len(self) % batch_size if drop_last else len(self)
        starts = range(0, stop, batch_size)
        if generator is None:
            yield from (self.tensors.slice(i, min(i + batch_size, stop)) for i in starts)
            return
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        order = order.to(self.tensors.x.device)
        yield from (self.tensors.select(order[i : i + batch_size]) for i in starts)

    def take(self, count: int) -> Dataset:
        """Return a view of the first ``count`` examples, or of all if there are fewer.

        Rows are stored in shuffled order, so the first ones are a random sample.
        """
        return replace(self, tensors=self.tensors.slice(0, max(count, 0)))

    def joined(self, other: Dataset) -> Dataset:
        """Return these examples followed by those of another split of the same data set."""
        return replace(self, tensors=self.tensors.joined(other.tensors))

    def to(self, device: torch.device | str) -> Dataset:
        """Return the examples on another device."""
        return replace(self, tensors=self.tensors.to(device))


@dataclass(frozen=True)
class Splits:
    """A data set in three disjoint splits.

    Attributes:
        train: for training and for the statistics of standardisation.
        valid: for model selection; held out of the public training part.
        test: for reporting.
        spec: description of the examples.
    """

    train: Dataset
    valid: Dataset
    test: Dataset
    spec: Spec

    def to(self, device: torch.device | str) -> Splits:
        """Return the splits on another device."""
        train, valid, test = (part.to(device) for part in (self.train, self.valid, self.test))
        return Splits(train, valid, test, self.spec)
