"""Peak memory of a piece of work, in a fresh process.

The process remembers its resident size before the work, does it once to warm up, lowers the
kernel's high-water mark, does it again and reports how far the mark rose above that size.
Where the mark cannot be lowered (anything but Linux), it is the mark of the whole
life of the process. On a GPU it is what torch has allocated there at most.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

if sys.platform != "win32":
    import resource

__all__ = ["in_fresh_process", "rise"]

STATUS = Path("/proc/self/status")
MB = 2**20


def in_fresh_process(module: str, *arguments: str) -> float:
    """Run ``python -m module arguments`` on one thread, and return the number it prints as JSON.

    Args:
        module: what to run; it prints megabytes in its last line.
        *arguments: what to hand to it.
    """
    command = [sys.executable, "-m", module, *arguments]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=one_thread, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def rise(work: Callable[[], object], device: str = "cpu") -> float:
    """Return how many megabytes are taken, at most, while doing ``work`` for the second time.

    Args:
        work: what to do.
        device: whose memory is meant.
    """
    if device == "cuda":
        work()
        torch.cuda.reset_peak_memory_stats()
        work()
        return torch.cuda.max_memory_allocated() / MB
    before = _status("VmRSS")
    work()
    _lower_mark()
    work()
    return _status("VmHWM") - before


def _lower_mark() -> None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _status(key: str) -> float:
    if not STATUS.exists():
        if sys.platform == "win32":
            raise OSError("the peak of memory cannot be read on Windows; measure on Linux or macOS")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (MB if sys.platform == "darwin" else 1024)
    lines = dict(line.split(":", 1) for line in STATUS.read_text("utf-8").splitlines())
    return int(lines[key].split()[0]) / 1024
