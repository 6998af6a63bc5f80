"""Peak memory of a piece of work, in a fresh process.

The process remembers its resident size before the work, does it once to warm up, lowers the
kernel's high-water mark, does it again and reports how far the mark rose above that size.
Where the mark cannot be lowered (anything but Linux), it is the mark of the whole
life of the process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

STATUS = Path("/proc/self/status")


def in_fresh_process(module: str, *arguments: str) -> float:
    """Run ``python -m module arguments`` and return the megabytes it prints as JSON."""
    command = [sys.executable, "-m", module, *arguments]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=one_thread, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def rise(work: Callable[[], object]) -> float:
    """Return how many megabytes the process grows by, at most, while doing ``work``."""
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
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return int(lines[key].split()[0]) / 1024
