"""Peak memory of a piece of work: of a fresh process, and of live tensors.

:func:`rise` takes the resident size before the work, does the work once to warm up, resets the
kernel's high-water mark, does it again and returns how far the mark rose above that size. Where the
mark cannot be reset (anything but Linux), it is that of the whole life of the process. On a GPU it
is the peak of what torch has allocated. :func:`in_fresh_process` calls a function in a process of
its own, where no earlier work has left free memory.

:func:`peak_megabytes` counts bytes of tensors. It does not depend on the allocator and is the same
in every run.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if sys.platform != "win32":
    import resource

__all__ = ["in_fresh_process", "peak_megabytes", "rise"]

STATUS = Path("/proc/self/status")
MB = 2**20
Found = TypeVar("Found")


def in_fresh_process(function: Callable[..., Found], *arguments: Any) -> Found:
    """Call a function of a module in a new process with one thread, and return its result.

    Raises:
        concurrent.futures.process.BrokenProcessPool: the process died.
    """
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        return pool.submit(function, *arguments).result()


def rise(work: Callable[[], object], device: str = "cpu") -> float:
    """Return the peak megabytes that ``work`` takes when it is done for the second time.

    Args:
        work: the work.
        device: ``"cpu"`` or ``"cuda"``.
    """
    if device == "cuda":
        work()
        torch.cuda.reset_peak_memory_stats()
        work()
        return torch.cuda.max_memory_allocated() / MB
    before = _status("VmRSS")
    work()
    _reset_mark()
    work()
    return _status("VmHWM") - before


def _reset_mark() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status(key: str) -> float:
    if not STATUS.exists():
        if sys.platform == "win32":
            raise OSError("peak memory cannot be read on Windows; measure on Linux or macOS")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (MB if sys.platform == "darwin" else 1024)
    lines = dict(line.split(":", 1) for line in STATUS.read_text("utf-8").splitlines())
    return int(lines[key].split()[0]) / 1024


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of storages that operations create, until they are freed."""

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
    """Do some work and return the peak megabytes of live tensors.

    Example:
        >>> peak_megabytes(lambda: torch.ones(2**18) + 1)    # 1 MB, and its sum
        2.0
    """
    live = LiveTensors()
    with live:
        work()
    return live.peak / MB
