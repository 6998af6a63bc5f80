"""What a data set is once it is loaded: tensors, their description, and batches of them.

Shapes. ``B`` examples, ``C`` channels, ``L`` observations of the longest series, ``D`` columns:

    image   x [B, C, H, W]
    series  x [B, L, C], its rows beyond ``lengths`` padding; times [L]; lengths [B]
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
#: Whose conventions: the authors' released loaders', or each set's own statistics and test split.
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
        note: one sentence on where it came from, and what is missing.
        preprocessing: which conventions were followed.
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
    """Some examples, as tensors.

    Attributes:
        x: inputs, float32; the shapes are those at the top of this module.
        y: classes, int64 ``[B]``, or None.
        lengths: how many observations each series has, int64 ``[B]``; None unless series.
        times: of the observations, float32 ``[L]``, shared by all series; None unless series.
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
        """The shapes alone."""
        present = {name: value for name, value in vars(self).items() if value is not None}
        return f"Batch({', '.join(f'{n}={list(v.shape)}' for n, v in present.items())})"

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same examples on another device."""
        batch = self._rows(lambda rows: rows.to(device, non_blocking=non_blocking))
        times = None if self.times is None else self.times.to(device, non_blocking=non_blocking)
        return replace(batch, times=times)

    def select(self, indices: Tensor) -> Batch:
        """The examples at ``indices``, copied."""
        return self._rows(lambda rows: rows.index_select(0, indices))

    def slice(self, start: int, stop: int) -> Batch:
        """The examples from ``start`` to ``stop``, not copied."""
        return self._rows(lambda rows: rows[start:stop])

    def joined(self, other: Batch) -> Batch:
        """These examples, and others of the same data set after them."""
        pair = (self, other)

        def both(name: str) -> Tensor | None:
            rows = [getattr(each, name) for each in pair]
            if name == "mask" and any(mask is not None for mask in rows):
                rows = [torch.ones_like(b.x).bool() if b.mask is None else b.mask for b in pair]
            return None if rows[0] is None else torch.cat(rows)

        return Batch(torch.cat([self.x, other.x]), both("y"), both("lengths"), self.times,
                     both("mask"))  # fmt: skip

    def _rows(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Apply ``change`` to everything that has a row an example: all but the times."""

        def on(rows: Tensor | None) -> Tensor | None:
            return None if rows is None else change(rows)

        return Batch(change(self.x), on(self.y), on(self.lengths), self.times, on(self.mask))


@dataclass(frozen=True)
class Dataset:
    """One split, whole in memory and ready to be fed to a model.

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
        """One example, as a batch of one; or those of a slice."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self.tensors.slice(start, stop)
            return self.batch(range(start, stop, step))
        row = range(len(self))[index]  # negative indices, and IndexError beyond the ends
        return self.tensors.slice(row, row + 1)

    def __iter__(self) -> Iterator[Batch]:
        """One example after the other, each a batch of one."""
        return (self[row] for row in range(len(self)))

    def batch(self, indices: Tensor | Sequence[int]) -> Batch:
        """The examples at ``indices``, in that order."""
        rows = torch.as_tensor(indices, dtype=torch.int64, device=self.tensors.x.device)
        return self.tensors.select(rows)

    def batches(
        self, batch_size: int, *, generator: torch.Generator | None = None, drop_last: bool = False
    ) -> Iterator[Batch]:
        """Go through the examples once.

        Args:
            batch_size: examples in a batch; the last batch holds what remains.
            generator: shuffles them; in order, and without a copy, when None.
            drop_last: leave out a last batch that is not full.

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
        """The first ``count`` examples (all of them, if there are fewer); nothing is copied.

        Rows are stored in a shuffled order, so the first ones are a fair sample.
        """
        return replace(self, tensors=self.tensors.slice(0, max(count, 0)))

    def joined(self, other: Dataset) -> Dataset:
        """These examples, and those of another part of the same data set after them."""
        return replace(self, tensors=self.tensors.joined(other.tensors))

    def to(self, device: torch.device | str) -> Dataset:
        """The same examples on another device."""
        return replace(self, tensors=self.tensors.to(device))


@dataclass(frozen=True)
class Splits:
    """A data set in three disjoint parts.

    Attributes:
        train: to fit on; also what standardisation was fitted on.
        valid: to choose by; held out of the public training part.
        test: to report on.
        spec: what the examples are.
    """

    train: Dataset
    valid: Dataset
    test: Dataset
    spec: Spec

    def to(self, device: torch.device | str) -> Splits:
        """The same splits on another device."""
        train, valid, test = (part.to(device) for part in (self.train, self.valid, self.test))
        return Splits(train, valid, test, self.spec)
