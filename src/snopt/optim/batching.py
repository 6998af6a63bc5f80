"""Which tensors to process together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from torch import Tensor

__all__ = ["BATCH", "alike", "together"]

BATCH = 1 << 20
"""Bytes of what is processed together. Only small tensors gain from one call for several, and the
results of a batch are in memory together."""


def together(kinds: Sequence[Hashable], sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Group items: items of one kind, up to ``limit`` bytes; a larger item is alone.

    Args:
        kinds: kind of each item.
        sizes: bytes of each item.
        limit: bytes of a group.

    Returns:
        the indices in each group, in the same order on every rank.

    Example:
        >>> together(["a", "b", "a"], [100, 100, 100], 200)
        [[0, 2], [1]]
        >>> together(["a", "a", "a"], [200, 50, 10], 250)
        [[0, 1], [2]]
    """
    groups: list[list[int]] = []
    filling: dict[Hashable, tuple[list[int], int]] = {}
    for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        group, filled = filling.get(kind, ([], 0))
        if not group or filled + size > limit:
            group, filled = [], 0
            groups.append(group)
        group.append(i)
        filling[kind] = (group, filled + size)
    return groups


def alike(tensors: Sequence[Tensor], kinds: Sequence[Hashable]) -> list[list[int]]:
    """Group tensors for operations that process several at once (``torch._foreach_*``).

    Args:
        tensors: one tensor of each item.
        kinds: what else must be equal within a group, besides dtype and device.

    Example:
        >>> import torch
        >>> alike([torch.ones(2), torch.ones(3).double(), torch.ones(4)], [1, 1, 1])
        [[0, 2], [1]]
    """
    whole = [(k, t.dtype, t.device) for k, t in zip(kinds, tensors, strict=True)]
    return together(whole, [t.nbytes for t in tensors], BATCH)
