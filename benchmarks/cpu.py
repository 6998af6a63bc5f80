"""Interleaved rounds in CPU seconds, which also work on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from snopt.lab.paper.timing import Run, Times, seconds_of
from snopt.lab.recipes.run import rotated


def seconds(run: Run) -> float:
    """Return the CPU seconds of one call."""
    return seconds_of(run, time.process_time)


def rounds(runs: Mapping[str, Run], repeats: int, warmup: int = 0) -> Times:
    """Time each of ``runs`` once in each round, after some untimed calls of each."""
    for run in runs.values():
        for _ in range(warmup):
            run()
    times: Times = {name: [] for name in runs}
    for turn in range(repeats):
        for name in rotated(list(runs), turn):
            times[name].append(seconds(runs[name]))
    return times
