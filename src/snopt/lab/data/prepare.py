"""Split and standardise raw data.

Everything here is deterministic. With ``standard`` preprocessing, all statistics are computed on
the training part.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from snopt.lab.data.errors import DataCorrupted
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Batch, Preprocessing, Spec, Splits

#: The fraction of a training set that is held out for validation.
VALID_FRACTION = 0.1
#: The seed of every draw.
SEED = 0
#: The authors' loaders standardise MNIST, SVHN and CIFAR10 with these values.
MNIST_MEAN, MNIST_SD = 0.1307, 0.3081


def hold_out(
    count: int, fraction: float = VALID_FRACTION, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Divide rows at random, with a fixed seed.

    Args:
        count: number of rows.
        fraction: the fraction of rows to hold out; at least one row.
        labels: classes ``[count]``; if given, the fraction of every class is held out, to within
            one row.

    Returns:
        indices of the rows kept and of those held out, both in shuffled order.

    Example:
        >>> kept, held = hold_out(20, 0.2, labels=torch.arange(20) % 2)
        >>> len(kept), len(held), (held % 2).sum().item()
        (16, 4, 2)
    """
    order = chosen = shuffled(count)
    if labels is not None:
        # Sort row i of a class of n by (i + 1/2) / n; the first rows then contain all classes.
        grouped = order[labels[order].argsort(stable=True)]
        sizes = labels.bincount()
        first = (sizes.cumsum(0) - sizes)[labels[grouped]]
        place = (torch.arange(count) - first + 0.5) / sizes[labels[grouped]]
        chosen = grouped[place.argsort(stable=True)]
    out = torch.zeros(count, dtype=torch.bool)
    out[chosen[: max(1, round(fraction * count))]] = True
    return _divided(out)


def hold_out_groups(groups: Tensor, fraction: float = VALID_FRACTION) -> tuple[Tensor, Tensor]:
    """Divide rows at random, keeping each group together.

    Args:
        groups: the group of each row ``[N]``.
        fraction: the fraction of groups to hold out; at least one group.

    Returns:
        indices of the rows kept and of those held out, both in shuffled order.

    Example:
        >>> kept, held = hold_out_groups(torch.tensor([3, 3, 4, 4, 3]), 0.5)
        >>> sorted(map(len, (kept, held)))
        [2, 3]
    """
    names = groups.unique()
    return _divided(torch.isin(groups, names[hold_out(len(names), fraction)[1]]))


def _divided(out: Tensor) -> tuple[Tensor, Tensor]:
    order = shuffled(len(out))
    return order[~out[order]], order[out[order]]


def shuffled(count: int) -> Tensor:
    """Return a random permutation of the numbers below ``count``, with a fixed seed."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(SEED))


# ------------------------------------------------------------------------------- images


def pixel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact mean and standard deviation of each channel, from counts of the levels.

    Args:
        x: uint8 ``[N, C, H, W]``.

    Returns:
        two tensors ``[C]``, in units of one level.

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


def image_splits(
    found: Found, train: Batch, test: Batch, preprocessing: Preprocessing, *, white: int = 255
) -> Splits:
    """Hold out a validation part of ``train`` and standardise the pixels.

    ``standard`` uses the mean and deviation of each channel over the training part, ``paper`` those
    of MNIST for every channel.

    Args:
        found: the files of the data set.
        train: the public training part: pixels uint8 ``[N, C, H, W]`` of ten classes.
        test: the public test part.
        preprocessing: the conventions to follow.
        white: the level of a white pixel.
    """
    spec = found.spec("image", tuple(train.x.shape[1:]), preprocessing, classes=10)
    kept, held = hold_out(len(train), labels=train.y)
    if preprocessing == "paper":
        mean, sd = torch.tensor([white * MNIST_MEAN]), torch.tensor([white * MNIST_SD])
    else:
        mean, sd = pixel_statistics(train.x[kept])

    def scaled(images: Batch, rows: Tensor) -> Batch:
        chosen = images.select(rows)
        x = chosen.x.float().sub_(mean[:, None, None]).div_(sd[:, None, None])
        return replace(chosen, x=x)

    return Splits.of(
        spec, scaled(train, kept), scaled(train, held), scaled(test, shuffled(len(test)))
    )


# ------------------------------------------------------------------------------- series


def series_splits(
    found: Found,
    train: Batch,
    test: Batch,
    classes: int,
    preprocessing: Preprocessing,
    groups: Tensor | None = None,
) -> Splits:
    """Split series and standardise their channels (see `_standard` and `_as_authors`).

    Args:
        found: the files of the data set.
        train: the public training part: values ``[N, L, C]``, NaN where none was observed.
        test: the public test part; its L may differ.
        classes: number of classes.
        preprocessing: the conventions to follow.
        groups: the group of each training series (a speaker, for example) that a split keeps
            together.
    """
    found.check(len(train), len(test))
    if train.x.shape[2] != test.x.shape[2]:
        channels = f"{test.x.shape[2]} channels, not {train.x.shape[2]}"
        raise DataCorrupted(found.paths[1], f"it has {channels}")
    longest = max(train.x.shape[1], test.x.shape[1])
    train, test = (
        replace(b, x=pad(b.x, (0, 0, 0, longest - b.x.shape[1]), value=math.nan))
        for b in (train, test)
    )
    if preprocessing == "paper":
        parts = _as_authors(train, test)
    else:
        parts = _standard(train, test, groups)
    spec = found.spec("series", tuple(parts[0].x.shape[1:]), preprocessing, classes=classes)
    return Splits.of(spec, *map(_filled, parts))


def _standard(train: Batch, test: Batch, groups: Tensor | None) -> list[Batch]:
    """Keep the public split; standardise channels with their observed values in ``train``."""
    if groups is None:
        kept, held = hold_out(len(train), labels=train.y)
    else:
        kept, held = hold_out_groups(groups)
    mean, sd = column_statistics(train.x[kept].flatten(0, 1))
    parts = [train.select(kept), train.select(held), test.select(shuffled(len(test)))]
    return [replace(part, x=(part.x - mean) / sd) for part in parts]


def _as_authors(train: Batch, test: Batch) -> list[Batch]:
    """Follow the authors' loader, which follows that of Neural CDEs (Kidger et al. 2020).

    Both public parts are joined and split again, 70 : 15 : 15 within every class. A series is
    padded with its last value, and the padding is included in the statistics. The channels are the
    time since the previous observation, then for each channel whether it was observed, then the
    values: 2 C + 1. (Their loader stores times and counts, and their model takes the differences.)
    """
    whole = train.joined(test)
    assert whole.y is not None
    count, longest, channels = whole.x.shape
    within = _within(whole)
    last = (within.sum(1, keepdim=True) - 1).expand(count, 1, channels)
    x = torch.where(within, whole.x, whole.x.gather(1, last))

    kept, rest = hold_out(count, 0.3, labels=whole.y)
    valid, held = hold_out(len(rest), 0.5, labels=whole.y[rest])
    mean, sd = column_statistics(x[kept].flatten(0, 1))
    since = torch.ones(count, longest, 1)
    since[:, 0] = 0.0
    x = torch.cat([since, (~x.isnan()).to(x.dtype), (x - mean) / (sd + 1e-5)], dim=2)
    whole = replace(whole, x=x)
    return [whole.select(rows) for rows in (kept, rest[valid], rest[held])]


def _filled(part: Batch) -> Batch:
    """Add times and replace missing values by zeros, with a mask if a series has gaps."""
    observed, within = ~part.x.isnan(), _within(part)
    mask = None if bool((observed | ~within).all()) else observed & within
    times = torch.arange(float(part.x.shape[1]))
    return replace(part, x=torch.where(observed, part.x, 0.0), times=times, mask=mask)


def _within(series: Batch) -> Tensor:
    """Mark the observations up to the length of each series, ``[N, L, 1]``."""
    assert series.lengths is not None
    return torch.arange(series.x.shape[1])[:, None] < series.lengths[:, None, None]


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
    train, valid, test = (
        ((rows[shuffled(len(rows))].double() - mean) / sd).float() for rows in (train, valid, test)
    )
    return Splits.of(spec, Batch(train), Batch(valid), Batch(test))


def _nonzero(sd: Tensor) -> Tensor:
    """Replace 0 by 1; a constant column then becomes zeros."""
    return torch.where(sd > 0, sd, torch.ones_like(sd))
