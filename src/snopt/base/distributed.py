"""Whether several processes train together: the one place that asks."""

from __future__ import annotations

from torch import distributed

__all__ = ["joined", "rank", "world_size"]


def joined() -> bool:
    """Whether there is a process group."""
    return distributed.is_available() and distributed.is_initialized()


def world_size() -> int:
    """Number of processes that train together; 1 without a process group.

    Example:
        >>> world_size()
        1
    """
    return distributed.get_world_size() if joined() else 1


def rank() -> int:
    """This process's number; 0 without a process group.

    Example:
        >>> rank()
        0
    """
    return distributed.get_rank() if joined() else 0
