"""Queries about the process group; the only module that asks ``torch.distributed``."""

from __future__ import annotations

from torch import distributed


def joined() -> bool:
    """Return whether this process belongs to a process group."""
    return distributed.is_available() and distributed.is_initialized()


def world_size() -> int:
    """Return the number of processes that train together, 1 without a process group.

    Example:
        >>> world_size()
        1
    """
    return distributed.get_world_size() if joined() else 1


def rank() -> int:
    """Return the rank of this process, 0 without a process group.

    Example:
        >>> rank()
        0
    """
    return distributed.get_rank() if joined() else 0
