"""The numbers of the tables: pure functions of runs, and their means over seeds."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from snopt.lab.report.curves import Quantity, table_of
from snopt.lab.report.groups import Group
from snopt.lab.report.read import Run
from snopt.lab.report.records import STEPS, Floats, number

# Metrics to minimise, for runs whose config has no mode.
LESS_IS_BETTER = re.compile(r"loss|nll|bpd|err|mse|mae|rmse|perplexity|divergence", re.IGNORECASE)

# Smaller relative differences are not highlighted.
NOTICEABLE = 0.02


@dataclass(frozen=True)
class Measure:
    """The metric that the runs of a task are compared by.

    Attributes:
        metric: name of the metric.
        mode: ``"max"`` or ``"min"``: whether large or small values are good.
        split: split on which it was evaluated during training.
        final_split: split on which it was evaluated at the end.
        target: the value for the time to target; None if nothing was evaluated.
        origin: description of where the target comes from.
        baseline: label of the group that ratios refer to.
    """

    metric: str
    mode: str
    split: str
    final_split: str
    target: float | None
    origin: str
    baseline: str

    @property
    def quantity(self) -> Quantity:
        """The metric as a curve during training."""
        return Quantity(self.split, self.metric)

    def reaches(self, value: float) -> bool:
        """Return whether a value is as good as the target; not for NaN or without a target."""
        if self.target is None:
            return False
        return value >= self.target if self.mode == "max" else value <= self.target

    @property
    def target_text(self) -> str:
        """The target as a condition, such as ``valid accuracy ≥ 0.98``."""
        sign = "≥" if self.mode == "max" else "≤"
        return "" if self.target is None else f"{self.quantity} {sign} {self.target:.4g}"


@dataclass(frozen=True)
class Stat:
    """Mean over ``count`` seeds and their standard deviation (n - 1; 0 for one seed)."""

    mean: float
    sd: float
    count: int


@dataclass(frozen=True)
class Summary(Group):
    """A group with its numbers, by the names of ``COLUMNS``; None if not recorded."""

    stats: dict[str, Stat | None]

    def whole(self, name: str) -> Stat | None:
        """Return a number if every seed has it; a mean over some seeds may be misleading."""
        found = self.stats[name]
        return found if found is not None and found.count == len(self.runs) else None


def measure_of(
    groups: list[Group], *, baseline: str | None = None, target: float | None = None
) -> Measure:
    """Choose the metric, target and baseline for the groups of one task.

    Args:
        groups: the groups of one task, at least one.
        baseline: label of the group to compare with; by default, and where the task has no such
            group, Adam, or else the first that is not SNOpt.
        target: value of the metric for the time to target; default the ``until`` of a config, or
            else the value that every seed of the baseline reached.
    """
    runs = [run for group in groups for run in group.runs]
    metric, mode = _metric_and_mode(runs)
    recorded: Counter[str] = Counter()
    for run in runs:
        recorded.update({split: len(series) for split, series in run.records.evals.items()})
    split = max(recorded, key=lambda name: (recorded[name], name == "valid"), default="valid")
    tested = any("test" in run.records.final for run in runs)
    other = _baseline(groups, baseline)
    wanted = [value for run in runs if (value := _until(run, metric)) is not None]
    if target is not None:
        origin = "as asked"
    elif wanted:
        target, origin = wanted[0], "the target of the training"
    else:
        bests = (_best(run, Quantity(split, metric), mode) for run in other.runs)
        reached = [best for best in bests if best is not None]
        target = (min if mode == "max" else max)(reached, default=None)
        origin = f"the value that every seed of {other.label} reached"
    final_split = "test" if tested else split
    return Measure(metric, mode, split, final_split, target, origin, other.label)


def _metric_and_mode(runs: list[Run]) -> tuple[str, str]:
    named = [metric for run in runs if isinstance(metric := run.config.get("metric"), str)]
    measured = [n for run in runs for series in run.records.evals.values() for n in series.values]
    metric = [*named, *(name for name in measured if name != "loss"), "loss"][0]
    modes = [str(mode) for run in runs if (mode := run.config.get("mode")) in ("max", "min")]
    return metric, [*modes, "min" if LESS_IS_BETTER.search(metric) else "max"][0]


def _baseline(groups: list[Group], wanted: str | None) -> Group:
    by_label = {group.label: group for group in groups}
    first_order = [label for label in by_label if not label.startswith("snopt")]
    return next(
        by_label[label] for label in (wanted, "adam", *first_order, *by_label) if label in by_label
    )


def _until(run: Run, metric: str) -> float | None:
    until = run.trained("until")
    told = isinstance(until, list) and len(until) == 2 and until[0] == metric
    return number(until[1]) if told else None  # type: ignore[index]


def final_value(run: Run, measure: Measure) -> float | None:
    """Return the metric of the end record, or else of the last evaluation."""
    value = run.records.final.get(measure.final_split, {}).get(measure.metric)
    if value is not None:
        return value
    return _reduced(run, Quantity(measure.final_split, measure.metric), lambda values: values[-1])


def best_value(run: Run, measure: Measure) -> float | None:
    """Return the best value of the metric in a run's evaluations."""
    return _best(run, measure.quantity, measure.mode)


def _best(run: Run, quantity: Quantity, mode: str) -> float | None:
    return _reduced(run, quantity, np.max if mode == "max" else np.min)


def time_to_target(run: Run, measure: Measure) -> tuple[float, float] | None:
    """Return seconds and iterations until the first evaluation that is as good as the target."""
    for iteration, seconds, value in table_of(run, measure.quantity):
        if measure.reaches(value):
            return float(seconds), float(iteration)
    return None


def seconds_per_iteration(run: Run) -> float | None:
    """Return the median time of an update, or None without two records.

    The median, because the first updates of a run (allocation, compilation) take longer.
    """
    steps = run.records.steps
    if len(steps) < 2:
        return None
    return float(np.median(np.diff(steps.seconds) / np.diff(steps.iteration)))


def _reduced(run: Run, quantity: Quantity, reduce: Callable[[Floats], float]) -> float | None:
    """Reduce the record of a quantity to one number; None if there is none."""
    values = table_of(run, quantity)[:, 2]
    return float(reduce(values)) if len(values) else None


def _to_target(part: int) -> Column:
    return lambda run, measure: (time_to_target(run, measure) or (None, None))[part]


def _steps(name: str, reduce: Callable[[Floats], float]) -> Column:
    return lambda run, _: _reduced(run, Quantity(STEPS, name), reduce)


Column: TypeAlias = Callable[[Run, Measure], float | None]
METRICS: dict[str, Column] = {"final": final_value, "best": best_value}
#: Small values are good; the ratio to the baseline is shown too.
COSTS: dict[str, Column] = {
    "seconds to target": _to_target(0),
    "iterations to target": _to_target(1),
    "seconds / iteration": lambda run, _: seconds_per_iteration(run),
    "NFE forward": _steps("nfe_forward", np.median),
    "NFE backward": _steps("nfe_backward", np.median),
    "memory, MB": _steps("memory_mb", np.max),
}
#: The numbers of a run by name, in the order of the table.
COLUMNS = METRICS | COSTS


def stat(values: Iterable[float | None]) -> Stat | None:
    """Return mean and standard deviation, ignoring missing values.

    Args:
        values: one per seed; None or NaN if missing.

    Example:
        >>> stat([1.0, None, 3.0])
        Stat(mean=2.0, sd=1.41421..., count=2)
    """
    there = [value for value in values if value is not None and math.isfinite(value)]
    if not there:
        return None
    sd = statistics.stdev(there) if len(there) > 1 else 0.0
    return Stat(statistics.fmean(there), sd, len(there))


def summarize(group: Group, measure: Measure) -> Summary:
    """Return a group with its numbers, averaged over its seeds."""
    stats = {
        name: stat(value(run, measure) for run in group.runs) for name, value in COLUMNS.items()
    }
    return Summary(group.label, group.runs, stats)


def differ(one: Stat, other: Stat, noticeable: float = NOTICEABLE) -> bool:
    """Return whether two means differ by more than both deviations, and by a share, 2 %.

    Example:
        >>> differ(Stat(0.98, 0.001, 3), Stat(0.95, 0.001, 3))
        True
        >>> differ(Stat(0.98, 0.001, 3), Stat(0.95, 0.03, 3))
        False
        >>> differ(Stat(0.98, 0.001, 3), Stat(0.97, 0.001, 3))
        False
    """
    distance = abs(one.mean - other.mean)
    least = noticeable * max(abs(one.mean), abs(other.mean))
    return distance > one.sd + other.sd and distance >= least
