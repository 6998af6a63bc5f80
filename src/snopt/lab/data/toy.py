"""Data sets that need no download: three random ones, and scikit-learn's digits.

The draws have a fixed seed, are not standardised, and do not depend on the preprocessing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snopt.lab.data.prepare import SEED, hold_out, image_splits
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Batch, Preprocessing, Spec, Splits

#: Points drawn for training, validation and test.
POINTS = (20_000, 2_000, 5_000)
#: Sequences drawn for training, validation and test.
SEQUENCES = (1_000, 200, 500)


def circle(found: Found, preprocessing: Preprocessing) -> Splits:
    """Draw two concentric circles: the Circle of the paper, after Chen et al. (2018)."""
    points = sample_circle(sum(POINTS), torch.Generator().manual_seed(SEED))
    return _drawn(Batch(points), found.spec("table", (2,), preprocessing), POINTS)


def two_moons(found: Found, preprocessing: Preprocessing) -> Splits:
    """Draw two interleaved half circles, one per class."""
    x, y = sample_moons(sum(POINTS), torch.Generator().manual_seed(SEED))
    return _drawn(Batch(x, y), found.spec("table", (2,), preprocessing, classes=2), POINTS)


def spirals(found: Found, preprocessing: Preprocessing) -> Splits:
    """Draw noisy spirals, 30 to 50 points long, turning left or right, growing or shrinking."""
    series = sample_spirals(sum(SEQUENCES), torch.Generator().manual_seed(SEED))
    spec = found.spec("series", tuple(series.x.shape[1:]), preprocessing, classes=4)
    return _drawn(series, spec, SEQUENCES)


def digits(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load scikit-learn's 1,797 handwritten digits, 1 x 8 x 8; a fifth of each class to test."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "the digits come with scikit-learn, which is not installed: pip install 'snopt[lab]'"
        ) from error

    content = load_digits()
    # Levels from 0 to 16, stored as floating-point numbers.
    x = torch.from_numpy(content.images).to(torch.uint8)[:, None]
    images = Batch(x, torch.from_numpy(content.target).long())
    kept, held = hold_out(len(images), 0.2, labels=images.y)
    return image_splits(found, images.select(kept), images.select(held), preprocessing, white=16)


def _drawn(batch: Batch, spec: Spec, sizes: tuple[int, int, int]) -> Splits:
    """Cut independent draws into three parts."""
    a, b = sizes[0], sizes[0] + sizes[1]
    return Splits.of(spec, batch.slice(0, a), batch.slice(a, b), batch.slice(b, len(batch)))


def sample_circle(count: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw points near the circles of radius 1 and 1/2.

    Args:
        count: number of draws.
        generator: source of randomness; the global one if None.

    Returns:
        points ``[count, 2]``, with Gaussian noise of deviation 0.06.

    Example:
        >>> sample_circle(5).shape
        torch.Size([5, 2])
    """
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    radius = torch.where(torch.rand(count, generator=generator) < 0.5, 1.0, 0.5)
    noise = 0.06 * torch.randn(count, 2, generator=generator)
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1) + noise


def sample_moons(count: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw points near two interleaved half circles.

    Args:
        count: number of draws.
        generator: source of randomness; the global one if None.

    Returns:
        points ``[count, 2]`` around the origin, and the half circle of each.
    """
    angle = math.pi * torch.rand(count, generator=generator)
    y = (torch.rand(count, generator=generator) < 0.5).long()
    sign = 1 - 2 * y
    centre = torch.stack([y - 0.5, 0.5 * y - 0.25], dim=1)
    arc = torch.stack([angle.cos(), angle.sin()], dim=1) * sign[:, None]
    return centre + arc + 0.1 * torch.randn(count, 2, generator=generator), y


def sample_spirals(count: int, generator: torch.Generator | None = None) -> Batch:
    """Draw noisy spirals of different lengths.

    Class 0 turns left and grows, 1 turns right and grows, 2 turns left and shrinks, 3 turns right
    and shrinks. They start at a random angle and make 1.25 turns at most.

    Args:
        count: number of draws.
        generator: source of randomness; the global one if None.

    Returns:
        the series, zero beyond their lengths.
    """
    shortest, longest = 30, 50
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator)
    y = torch.randint(4, (count,), generator=generator)
    start = 2 * math.pi * torch.rand(count, 1, generator=generator)
    t = torch.arange(longest) / longest
    angle = start + 2 * math.pi * 1.25 * torch.where(y % 2 == 0, 1.0, -1.0)[:, None] * t
    radius = torch.where((y < 2)[:, None], 0.25 + t, 1.25 - t)
    x = radius[..., None] * torch.stack([angle.cos(), angle.sin()], dim=2)
    x = x + 0.1 * torch.randn(x.shape, generator=generator)
    within = torch.arange(longest) < lengths[:, None]
    return Batch(x * within[..., None], y, lengths, torch.arange(float(longest)))
