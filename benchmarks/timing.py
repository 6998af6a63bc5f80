"""Interleaved timing: in each round every contender runs once, in turning order.

Machines drift. Ratios are therefore taken within a round, between runs a moment apart, and
only then summarised over rounds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from snopt.lab.recipes.run import rotated

Times = dict[str, list[float]]
Run = Callable[[], object]


def interleave(runs: Mapping[str, Run], repeats: int, warmup: int) -> Times:
    """Time each of ``runs`` once in each of ``repeats`` rounds; seconds by name."""
    for run in runs.values():
        for _ in range(warmup):
            run()
    names = list(runs)
    times: Times = {name: [] for name in names}
    for turn in range(repeats):
        for name in rotated(names, turn):
            times[name].append(_seconds(runs[name]))
    return times


def _seconds(run: Run) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    finally:
        gc.enable()


def ratios(times: Times, name: str, baseline: str) -> list[float]:
    """Divide the times of ``name`` by those of ``baseline``, round by round."""
    return [ours / theirs for ours, theirs in zip(times[name], times[baseline], strict=True)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the quartiles of some values."""
    if len(values) < 2:
        return {"median": values[0], "lower": values[0], "upper": values[0]}
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "lower": lower, "upper": upper}
