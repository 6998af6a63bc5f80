"""Peak bytes of tensors alive during a piece of work.

Unlike the process's size this knows nothing of the allocator: it is the same on every run, and
what the mathematics is responsible for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["peak_megabytes"]


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of storages that operations make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.now: int = 0
        self.peak: int = 0
        self.seen: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return out

    def _count(self, storage: Any) -> None:
        if storage in self.seen:
            return
        self.seen[storage] = None
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.now -= size


def peak_megabytes(work: Callable[[], object]) -> float:
    """Do some work and return the most megabytes that tensors took at one time.

    Args:
        work: what to do.

    Example:
        >>> peak_megabytes(lambda: torch.ones(2**18) + 1)    # 1 MB, and its sum
        2.0
    """
    live = LiveTensors()
    with live:
        work()
    return live.peak / 2**20
