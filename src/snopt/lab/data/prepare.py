"""Split and standardise raw data.

Everything here is deterministic. With ``standard`` preprocessing, all statistics are those of the
training part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snopt.lab.data.spec import Batch, Dataset, Spec, Splits

__all__ = [
    "MNIST_MEAN",
    "MNIST_SD",
    "Images",
    "Series",
    "column_statistics",
    "hold_out",
    "hold_out_groups",
    "image_splits",
    "series_splits",
    "shuffled",
    "table_splits",
]

#: The fraction of a training set that is held out for validation.
VALID_FRACTION = 0.1
#: The seed of every draw.
SEED = 0
#: The authors' loaders standardise MNIST, SVHN and CIFAR10 with these.
MNIST_MEAN, MNIST_SD = 0.1307, 0.3081


def hold_out(
    count: int, fraction: float = VALID_FRACTION, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Divide rows at random, with a fixed seed.

    Args:
        count: number of rows.
        fraction: the fraction of rows to hold out; at least one row.
        labels: classes ``[count]``; if given, this fraction of every class is held out, up to one
            row.

    Returns:
        Indices of the rows kept and of those held out, both in shuffled order.

    Example:
        >>> kept, held = hold_out(20, 0.2, labels=torch.arange(20) % 2)
        >>> len(kept), len(held), (held % 2).sum().item()
        (16, 4, 2)
    """
    order = shuffled(count)
    if labels is None:
        chosen = order
    else:
        # Order row i of a class of n by (i + 1/2) / n: the first rows are then of all classes.
        grouped = order[labels[order].argsort(stable=True)]
        sizes = labels.bincount()
        first = (sizes.cumsum(0) - sizes)[labels[grouped]]
        place = (torch.arange(count) - first + 0.5) / sizes[labels[grouped]]
        chosen = grouped[place.argsort(stable=True)]
    out = torch.zeros(count, dtype=torch.bool)
    out[chosen[: max(1, round(fraction * count))]] = True
    return order[~out[order]], order[out[order]]


def hold_out_groups(groups: Tensor, fraction: float = VALID_FRACTION) -> tuple[Tensor, Tensor]:
    """Divide rows at random, keeping each group together.

    Args:
        groups: the group of each row ``[N]``.
        fraction: the fraction of groups to hold out; at least one group.

    Returns:
        Indices of the rows kept and of those held out, both in shuffled order.

    Example:
        >>> kept, held = hold_out_groups(torch.tensor([3, 3, 4, 4, 3]), 0.5)
        >>> sorted(map(len, (kept, held)))
        [2, 3]
    """
    names = groups.unique()
    out = torch.isin(groups, names[hold_out(len(names), fraction)[1]])
    order = shuffled(len(groups))
    return order[~out[order]], order[out[order]]


def shuffled(count: int) -> Tensor:
    """Return a random permutation of the numbers below ``count``, with a fixed seed."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(SEED))


# ------------------------------------------------------------------------------- images


@dataclass(frozen=True)
class Images:
    """Pixels uint8 ``[N, C, H, W]`` and classes int64 ``[N]``."""

    x: Tensor
    y: Tensor


def pixel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact mean and standard deviation of each channel, from counts of the levels.

    Args:
        x: uint8 ``[N, C, H, W]``.

    Returns:
        Two tensors ``[C]``, in units of one level.

    Example:
        >>> x = torch.tensor([0, 0, 4, 4], dtype=torch.uint8).reshape(1, 1, 2, 2)
        >>> pixel_statistics(x)
        (tensor([2.]), tensor([2.]))
    """
    levels = torch.arange(256, dtype=torch.float64)
    counts = [x[:, c].flatten().bincount(minlength=256) for c in range(x.shape[1])]
    p = torch.stack(counts).double() / (x.numel() / x.shape[1])
    mean = p @ levels
    variance = (p @ levels.square() - mean.square()).clamp_min(0)
    return mean.float(), _nonzero(variance.sqrt().float())


def image_splits(spec: Spec, train: Images, test: Images, *, white: int = 255) -> Splits:
    """Hold out a validation part of ``train`` and standardise the pixels.

    ``standard`` uses the mean and deviation of each channel over the training part, ``paper`` those
    of MNIST for every channel.

    Args:
        spec: description of the data set.
        train: the public training part.
        test: the public test part.
        white: the level of a white pixel.
    """
    kept, held = hold_out(len(train.y), labels=train.y)
    if spec.preprocessing == "paper":
        mean, sd = torch.tensor([white * MNIST_MEAN]), torch.tensor([white * MNIST_SD])
    else:
        mean, sd = pixel_statistics(train.x[kept])

    def dataset(images: Images, rows: Tensor) -> Dataset:
        x = images.x[rows].float()
        x.sub_(mean[:, None, None]).div_(sd[:, None, None])
        return Dataset(Batch(x, images.y[rows]), spec)

    return Splits(
        dataset(train, kept), dataset(train, held), dataset(test, shuffled(len(test.y))), spec
    )


# ------------------------------------------------------------------------------- series


@dataclass(frozen=True)
class Series:
    """Series of different lengths.

    Attributes:
        x: values, float32 ``[N, L, C]``, NaN where none was observed.
        y: classes, int64 ``[N]``.
        lengths: int64 ``[N]``.
        groups: the group of each series (a speaker, for example) that a split keeps together.
    """

    x: Tensor
    y: Tensor
    lengths: Tensor
    groups: Tensor | None = None

    def select(self, rows: Tensor) -> Series:
        """Return the series at ``rows``."""
        return Series(self.x[rows], self.y[rows], self.lengths[rows])

    def padded(self, longest: int) -> Series:
        """Return the series padded to L = ``longest``."""
        count, have, channels = self.x.shape
        more = self.x.new_full((count, longest - have, channels), float("nan"))
        return replace(self, x=torch.cat([self.x, more], dim=1))


def series_splits(spec: Spec, train: Series, test: Series) -> Splits:
    """Split series and standardise their channels (see `_standard` and `_as_authors`)."""
    longest = max(train.x.shape[1], test.x.shape[1])
    train, test = train.padded(longest), test.padded(longest)
    if spec.preprocessing == "paper":
        parts = _as_authors(train, test)
    else:
        parts = _standard(train, test)
    spec = replace(spec, shape=tuple(parts[0].x.shape[1:]), longest=longest)
    times = torch.arange(longest, dtype=torch.float32)
    train_set, valid_set, test_set = (Dataset(_batch(part, times), spec) for part in parts)
    return Splits(train_set, valid_set, test_set, spec)


def _standard(train: Series, test: Series) -> list[Series]:
    """Keep the public split; standardise channels with their observed values in ``train``."""
    if train.groups is None:
        kept, held = hold_out(len(train.y), labels=train.y)
    else:
        kept, held = hold_out_groups(train.groups)
    mean, sd = column_statistics(train.x[kept].flatten(0, 1))
    parts = [train.select(kept), train.select(held), test.select(shuffled(len(test.y)))]
    return [replace(part, x=(part.x - mean) / sd) for part in parts]


def _as_authors(train: Series, test: Series) -> list[Series]:
    """Do as the authors' loader, which follows that of Neural CDEs (Kidger et al. 2020).

    Both public parts are joined and split again, 70 : 15 : 15 within every class. A series is
    padded with its last value, and this padding counts in the statistics. The channels are the time
    since the previous observation, then for each channel whether it was observed, then the values:
    2 C + 1. (Their loader stores times and counts, and their model takes the differences.)
    """
    whole = Series(
        *(torch.cat([getattr(train, n), getattr(test, n)]) for n in ("x", "y", "lengths"))
    )
    count, longest, _ = whole.x.shape
    last = (whole.lengths - 1)[:, None, None].expand(count, 1, whole.x.shape[2])
    beyond = torch.arange(longest)[:, None] >= whole.lengths[:, None, None]
    x = torch.where(beyond, whole.x.gather(1, last), whole.x)

    kept, rest = hold_out(count, 0.3, labels=whole.y)
    valid, held = hold_out(len(rest), 0.5, labels=whole.y[rest])
    mean, sd = column_statistics(x[kept].flatten(0, 1))
    since = torch.ones(count, longest, 1)
    since[:, 0] = 0.0
    x = torch.cat([since, (~x.isnan()).to(x.dtype), (x - mean) / (sd + 1e-5)], dim=2)
    whole = replace(whole, x=x)
    return [whole.select(rows) for rows in (kept, rest[valid], rest[held])]


def _batch(part: Series, times: Tensor) -> Batch:
    """Replace missing values by zeros, with a mask if one is within a series."""
    observed = ~part.x.isnan()
    within = torch.arange(part.x.shape[1])[:, None] < part.lengths[:, None, None]
    complete = bool((observed | ~within).all())
    x = torch.where(observed, part.x, 0.0)
    return Batch(x, part.y, part.lengths, times, None if complete else observed & within)


def column_statistics(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and standard deviation of every column, ignoring NaN.

    Example:
        >>> column_statistics(torch.tensor([[0.0, 1.0], [2.0, float("nan")]]))
        (tensor([1., 1.]), tensor([1., 1.]))
    """
    rows = rows.double()
    mean = rows.nanmean(0)
    sd = (rows - mean).square().nanmean(0).sqrt()
    return mean.float(), _nonzero(sd.float())


# ------------------------------------------------------------------------------- tables


def table_splits(
    spec: Spec, train: Tensor, valid: Tensor, test: Tensor, scale: tuple[Tensor, Tensor]
) -> Splits:
    """Standardise the columns of all three parts.

    Args:
        spec: description of the data set.
        train: rows of the training part ``[N, D]``.
        valid: rows of the validation part.
        test: rows of the test part.
        scale: mean and standard deviation of the columns.
    """
    mean, sd = scale

    def dataset(rows: Tensor) -> Dataset:
        return Dataset(Batch(((rows[shuffled(len(rows))].double() - mean) / sd).float()), spec)

    return Splits(dataset(train), dataset(valid), dataset(test), spec)


def _nonzero(sd: Tensor) -> Tensor:
    """Replace 0 by 1, so that a constant column becomes zeros."""
    return torch.where(sd > 0, sd, torch.ones_like(sd))
