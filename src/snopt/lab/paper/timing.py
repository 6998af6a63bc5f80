"""Interleaved timing: in each round every contender runs once, each round in another order.

The speed of a machine drifts. Ratios are therefore taken within a round, between runs a moment
apart, and then summarised over rounds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from snopt.lab.recipes.run import rotated
from snopt.optim import SNOpt

Times: TypeAlias = dict[str, list[float]]
Run: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], float]
NEVER = 10**9


def interleave(
    runs: Mapping[str, Run], repeats: int, warmup: int = 0, clock: Clock = time.perf_counter
) -> Times:
    """Time each of ``runs`` once in each of ``repeats`` rounds; return seconds by name."""
    for run in runs.values():
        for _ in range(warmup):
            run()
    times: Times = {name: [] for name in runs}
    for turn in range(repeats):
        for name in rotated(list(runs), turn):
            times[name].append(seconds_of(runs[name], clock))
    return times


def seconds_of(run: Run, clock: Clock = time.perf_counter) -> float:
    """Time one call, without garbage collection."""
    gc.collect()
    gc.disable()
    try:
        start = clock()
        run()
        return clock() - start
    finally:
        gc.enable()


def ratios(times: Times, name: str, baseline: str) -> list[float]:
    """Divide the times of ``name`` by those of ``baseline``, round by round."""
    return [ours / theirs for ours, theirs in zip(times[name], times[baseline], strict=True)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the quartiles of values."""
    if len(values) < 2:
        return {"median": values[0], "lower": values[0], "upper": values[0]}
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower": lower, "upper": upper}


def amortised(plain: Sequence[float], refresh: Sequence[float], every: int) -> list[float]:
    """Return seconds per iteration if one of ``every`` iterations is a refresh, round by round.

    Example:
        >>> amortised([1.0], [3.0], every=100)
        [1.02]
    """
    return [p + (r - p) / every for p, r in zip(plain, refresh, strict=True)]


def set_refresh(optimizer: SNOpt, refresh: bool) -> None:
    """Make the next iteration of SNOpt a refresh, or a plain one."""
    done = optimizer.counts.iterations
    optimizer.next_refresh = done if refresh else NEVER
    optimizer.recorder.arm(seed=done) if refresh else optimizer.recorder.disarm()
