"""Windows of a convolution's kernel on its input: views, and sums over windows.

A kernel axis of ``size`` entries, ``dilation`` apart, reads a window of ``span`` pixels and moves
by ``stride``. Copying all windows (im2col) is most of the cost of second moments over windows. The
functions here avoid it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

__all__ = ["Axis", "coverage_counts", "position_gram", "windows"]

#: Positions along the last axis per matrix product. More positions share more pixels, but more
#: pairs of pixels without a common window are multiplied.
TILE = 32


@dataclass(frozen=True)
class Axis:
    """One axis of a kernel.

    Attributes:
        size: entries of the kernel.
        stride: pixels from one position to the next.
        dilation: pixels from one entry to the next.
    """

    size: int
    stride: int = 1
    dilation: int = 1

    @property
    def span(self) -> int:
        """Pixels from the first entry to the last, both included."""
        return self.dilation * (self.size - 1) + 1

    def positions(self, length: int) -> int:
        """Return the number of kernel positions on a padded input of this length."""
        return (length - self.span) // self.stride + 1

    def window(self, position: int) -> slice:
        """Return the pixels under the kernel at a position."""
        start = position * self.stride
        return slice(start, start + self.span, self.dilation)


def windows(x: Tensor, axes: Sequence[Axis]) -> Tensor:
    """View an input as its windows, without a copy.

    Args:
        x: padded input, ``[..., *pixels]``.
        axes: the kernel's axes.

    Returns:
        ``[..., *positions, *kernel]``.

    Example:
        >>> windows(torch.arange(4.0), [Axis(2, stride=2)])
        tensor([[0., 1.],
                [2., 3.]])
    """
    first = x.dim() - len(axes)
    for i, axis in enumerate(axes):
        # Each unfold appends the window as a last axis, so earlier axes keep their place.
        x = x.unfold(first + i, axis.span, axis.stride)[..., :: axis.dilation]
    return x


@lru_cache(maxsize=64)
def coverage_counts(axis: Axis, length: int) -> tuple[int, ...]:
    """Count the windows that contain each pixel of a padded line.

    Args:
        axis: an axis of the kernel.
        length: pixels of the line.

    Example:
        >>> coverage_counts(Axis(2), 4)
        (1, 2, 2, 1)
    """
    counts = [0] * length
    for position in range(axis.positions(length)):
        for pixel in range(length)[axis.window(position)]:
            counts[pixel] += 1
    return tuple(counts)


def position_gram(x: Tensor, axes: Sequence[Axis]) -> Tensor:
    """Compute second moments of the kernel's entries: Σ w wᵀ over rows and windows.

    The full rows under the kernel at one position are a contiguous part of the input. Their second
    moments over examples and channels are one matrix product,

        S[a w, b v] = Σ x[.., a, w] x[.., b, v],

    and the windows' are sums along its diagonals, Σ_q S[a (q + k), b (q + l)].

    Args:
        x: padded input, ``[groups, rows, *pixels]``.
        axes: the kernel's axes.

    Returns:
        ``[groups, kernel, kernel]``, the kernel's entries in the order of the weight.

    Example:
        >>> position_gram(torch.tensor([[[1.0, 2.0, 3.0]]]), [Axis(2)])
        tensor([[[ 5.,  8.],
                 [ 8., 13.]]])
    """
    *lead, last = axes
    lines = [range(axis.positions(n)) for axis, n in zip(lead, x.shape[2:], strict=False)]
    count = last.positions(x.shape[-1])
    sizes = [axis.size for axis in lead]
    height = torch.Size(sizes).numel()
    total = x.new_zeros(x.shape[0], height, height, last.size, last.size)
    for first in range(0, count, TILE):
        taken = min(TILE, count - first)
        start = first * last.stride
        width = (taken - 1) * last.stride + last.span
        columns = x[..., start : start + width]
        moments = x.new_zeros(x.shape[0], height * width, height * width)
        for place in product(*lines):
            under = [axis.window(position) for axis, position in zip(lead, place, strict=True)]
            rows = columns[(slice(None), slice(None), *under)].flatten(2)
            moments.baddbmm_(rows.mT, rows)
        # [groups, height, width, height, width], both widths cut into windows, of which the
        # pairs at equal positions are kept.
        pairs = moments.view(-1, height, width, height, width).movedim(3, 2)
        pairs = windows(pairs, [last, last]).diagonal(dim1=3, dim2=4)
        total += pairs.sum(-1)
    return total.movedim(3, 2).reshape(x.shape[0], height * last.size, height * last.size)
