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

#: Kind of example.
Kind: TypeAlias = Literal["image", "series", "table"]
#: How much of the public data set was found (docs/models.md).
Completeness: TypeAlias = Literal["whole", "part", "stand-in", "generated"]
#: ``"paper"`` follows the authors' loaders; ``"standard"`` uses the training statistics.
Preprocessing: TypeAlias = Literal["paper", "standard"]


@dataclass(frozen=True)
class Spec:
    """Description of a data set.

    Attributes:
        name: name for `snopt.lab.data.load`.
        kind: kind of example.
        shape: shape of one example.
        classes: number of classes, or None when there are no labels.
        longest: L of a series, else None.
        completeness: how much of the public data set this is.
        note: one sentence on its source and missing parts.
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
        """Raise UnknownName for unknown values."""
        vocabulary = {"kind": Kind, "completeness": Completeness, "preprocessing": Preprocessing}
        for name, words in vocabulary.items():
            if getattr(self, name) not in get_args(words):
                raise unknown(name, getattr(self, name), get_args(words))


@dataclass(frozen=True, repr=False)
class Batch:
    """Examples as tensors.

    Attributes:
        x: inputs, with the shapes at the top of this module; float32 in a `Dataset`, as stored
            in a file when read from it (NaN where a series has no value).
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
        shapes = {name: list(value.shape) for name, value in self._tensors(times=True).items()}
        return f"Batch({', '.join(f'{name}={shape}' for name, shape in shapes.items())})"

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the examples on another device."""
        return self._map(lambda values: values.to(device, non_blocking=non_blocking), times=True)

    def select(self, indices: Tensor) -> Batch:
        """Return a copy of the examples at ``indices``."""
        return self._map(lambda rows: rows.index_select(0, indices))

    def slice(self, start: int, stop: int) -> Batch:
        """Return a view of the examples from ``start`` to ``stop``."""
        return self._map(lambda rows: rows[start:stop])

    def joined(self, other: Batch) -> Batch:
        """Return these examples followed by others of the same data set."""
        first, second = (batch._tensors(times=False) for batch in (self, other))
        if "mask" in first or "mask" in second:
            for tensors in (first, second):
                tensors.setdefault("mask", torch.ones_like(tensors["x"]).bool())
        both = {name: torch.cat([rows, second[name]]) for name, rows in first.items()}
        return replace(self, **both)

    def _tensors(self, *, times: bool) -> dict[str, Tensor]:
        """Return the tensors that are not None; the times have no row per example."""
        here = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in here.items() if times or name != "times"}

    def _map(self, change: Callable[[Tensor], Tensor], *, times: bool = False) -> Batch:
        changed = {name: change(value) for name, value in self._tensors(times=times).items()}
        return replace(self, **changed)


@dataclass(frozen=True)
class Dataset:
    """One split, held in memory.

    Attributes:
        tensors: all examples.
        spec: description of the examples.

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
        found = range(len(self))[index]  # handles negative indices and raises IndexError
        rows = range(found, found + 1) if isinstance(found, int) else found
        return self.tensors.slice(rows.start, rows.stop) if rows.step == 1 else self.batch(rows)

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
            each batch.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1")
        stop = len(self) - len(self) % batch_size if drop_last else len(self)
        order = None
        if generator is not None:
            order = torch.randperm(len(self), generator=generator, device=generator.device)
            order = order.to(self.tensors.x.device)
        for start in range(0, stop, batch_size):
            end = min(start + batch_size, stop)
            if order is None:
                yield self.tensors.slice(start, end)
            else:
                yield self.tensors.select(order[start:end])

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

    @classmethod
    def of(cls, spec: Spec, train: Batch, valid: Batch, test: Batch) -> Splits:
        """Return the splits of these examples."""
        return cls(Dataset(train, spec), Dataset(valid, spec), Dataset(test, spec), spec)

    def to(self, device: torch.device | str) -> Splits:
        """Return the splits on another device."""
        parts = (part.tensors.to(device) for part in (self.train, self.valid, self.test))
        return Splits.of(self.spec, *parts)
