"""The numbers of the tables: pure functions of runs, and their means over seeds."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from snopt.lab.report.curves import Quantity, table_of
from snopt.lab.report.groups import Group
from snopt.lab.report.read import Run
from snopt.lab.report.records import STEPS, Floats, number

# Metrics to be made small, for runs whose config does not tell.
LESS_IS_BETTER = re.compile(r"loss|nll|bpd|err|mse|mae|rmse|perplexity|divergence", re.IGNORECASE)

# Smaller differences of costs are not worth pointing at.
NOTICEABLE = 0.02


@dataclass(frozen=True)
class Measure:
    """What the runs of a task are compared by.

    Attributes:
        metric: Name of the metric.
        mode: ``"max"`` or ``"min"``: which end of it is good.
        split: Where it was followed during training.
        final_split: Where it was measured at the end.
        target: The value whose time is taken; None when nothing was measured.
        origin: Where the target comes from, in words.
        baseline: Label of the group that ratios refer to.
    """

    metric: str
    mode: str
    split: str
    final_split: str
    target: float | None
    origin: str
    baseline: str

    def reaches(self, value: float) -> bool:
        """Whether a value is as good as the target.

        Returns:
            True if it is; False for NaN and without a target.
        """
        if self.target is None:
            return False
        return value >= self.target if self.mode == "max" else value <= self.target

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values.

        Args:
            values: Of the metric; those that are not finite do not count.

        Returns:
            The best, or None of none.
        """
        finite = [value for value in values if math.isfinite(value)]
        return (max if self.mode == "max" else min)(finite, default=None)

    @property
    def target_text(self) -> str:
        """The target as a condition, such as ``valid accuracy ≥ 0.98``."""
        sign = "≥" if self.mode == "max" else "≤"
        return "" if self.target is None else f"{self.split} {self.metric} {sign} {self.target:.4g}"


@dataclass(frozen=True)
class Stat:
    """Mean over seeds.

    Attributes:
        mean: The mean.
        sd: The standard deviation (n - 1); 0 for one seed.
        count: Seeds that have the number.
    """

    mean: float
    sd: float
    count: int


@dataclass(frozen=True)
class Summary:
    """A group in numbers.

    Attributes:
        group: The group.
        states: How many runs are in which state.
        stats: By name of ``COLUMNS``; None where nothing was recorded.
    """

    group: Group
    states: Counter[str]
    stats: dict[str, Stat | None]

    def whole(self, name: str) -> Stat | None:
        """Return a number that every seed took part in; a mean over some may be luck."""
        found = self.stats[name]
        return found if found is not None and found.count == len(self.group.runs) else None


def measure_of(
    groups: list[Group], *, baseline: str | None = None, target: float | None = None
) -> Measure:
    """Settle what the groups of one task are compared by.

    Args:
        groups: The groups of one task, at least one.
        baseline: Label of the group to compare with; by default, and where the task has no such
            group, Adam, or else the first that is not SNOpt.
        target: Value of the metric whose time is taken; default the ``until`` of a config, or
            else what every seed of the baseline reached.
    """
    runs = [run for group in groups for run in group.runs]
    metric, mode = _metric_and_mode(runs)
    recorded: Counter[str] = Counter()
    for run in runs:
        recorded.update({split: len(series) for split, series in run.records.evals.items()})
    split = max(recorded, key=lambda name: (recorded[name], name == "valid"), default="valid")
    tested = any("test" in _finals(run) for run in runs)
    other = _baseline(groups, baseline)
    without = Measure(metric, mode, split, "test" if tested else split, None, "", other.label)
    if target is not None:
        return replace(without, target=target, origin="as asked")
    wanted = [value for run in runs if (value := _until(run, metric)) is not None]
    if wanted:
        return replace(without, target=wanted[0], origin="the target of the training")
    reached = [value for run in other.runs if (value := best_value(run, without)) is not None]
    if not reached:
        return without
    worst = min(reached) if mode == "max" else max(reached)
    return replace(without, target=worst, origin=f"what every seed of {other.label} reached")


def _metric_and_mode(runs: list[Run]) -> tuple[str, str]:
    told = [metric for run in runs if isinstance(metric := run.told("metric"), str)]
    measured = [n for run in runs for series in run.records.evals.values() for n in series.values]
    others = [name for name in measured if name != "loss"]
    metric = next(iter([*told, *others, "loss"]))
    modes = [str(mode) for run in runs if (mode := run.told("mode")) in ("max", "min")]
    guess = "min" if LESS_IS_BETTER.search(metric) else "max"
    return metric, next(iter(modes), guess)


def _baseline(groups: list[Group], wanted: str | None) -> Group:
    by_label = {group.label: group for group in groups}
    first_order = [label for label in by_label if not label.startswith("snopt")]
    return next(
        by_label[label] for label in (wanted, "adam", *first_order, *by_label) if label in by_label
    )


def _until(run: Run, metric: str) -> float | None:
    train = run.config.get("train")
    until = train.get("until") if isinstance(train, dict) else None
    if isinstance(until, list) and len(until) == 2 and until[0] == metric:
        return number(until[1])
    return None


def _finals(run: Run) -> dict[str, object]:
    final = (run.records.end or {}).get("final")
    return final if isinstance(final, dict) else {}


def final_value(run: Run, measure: Measure) -> float | None:
    """The metric at the end of a run.

    Returns:
        That of the end record, else that of the last evaluation; None if there is neither.
    """
    final = _finals(run).get(measure.final_split)
    value = number(final.get(measure.metric)) if isinstance(final, dict) else None
    if value is not None:
        return value
    table = table_of(run, Quantity(measure.final_split, measure.metric))
    return float(table[-1, 2]) if len(table) else None


def best_value(run: Run, measure: Measure) -> float | None:
    """The best value of the metric in a run's evaluations.

    Args:
        run: The run.
        measure: Which metric, and which end of it is good.

    Returns:
        The best, or None without evaluations.
    """
    return measure.best(table_of(run, Quantity(measure.split, measure.metric))[:, 2])


def time_to_target(run: Run, measure: Measure) -> tuple[float, float] | None:
    """When a run first evaluated as good as the target.

    Returns:
        Training seconds and iterations; None if it never did.
    """
    for iteration, seconds, value in table_of(run, Quantity(measure.split, measure.metric)):
        if measure.reaches(value):
            return float(seconds), float(iteration)
    return None


def seconds_per_iteration(run: Run) -> float | None:
    """Median time of an update.

    The median, because the first updates of a run (allocation, compilation) are not like the
    others.

    Returns:
        Seconds, or None without two records.
    """
    steps = run.records.steps
    if len(steps) < 2:
        return None
    return float(np.median(np.diff(steps.seconds) / np.diff(steps.iteration)))


def _steps_of(run: Run, name: str, reduce: Callable[[Floats], float]) -> float | None:
    """Reduce what was recorded at every update to one number."""
    values = table_of(run, Quantity(STEPS, name))[:, 2]
    return float(reduce(values)) if len(values) else None


def _to_target(part: int) -> Column:
    def value(run: Run, measure: Measure) -> float | None:
        reached = time_to_target(run, measure)
        return None if reached is None else reached[part]

    return value


Column: TypeAlias = Callable[[Run, Measure], float | None]
METRICS: dict[str, Column] = {"final": final_value, "best": best_value}
COSTS: dict[str, Column] = {
    "seconds to target": _to_target(0),
    "iterations to target": _to_target(1),
    "seconds / iteration": lambda run, _: seconds_per_iteration(run),
    "NFE forward": lambda run, _: _steps_of(run, "nfe_forward", np.median),
    "NFE backward": lambda run, _: _steps_of(run, "nfe_backward", np.median),
    "memory, MB": lambda run, _: _steps_of(run, "memory_mb", np.max),
}
"""What is to be small; the ratio to the baseline's is shown too."""
COLUMNS = METRICS | COSTS
"""The numbers of a run by name, in the order of the table."""


def stat(values: Iterable[float | None]) -> Stat | None:
    """Mean and standard deviation of the values that are there.

    Args:
        values: One per seed; None and NaN where there is none.

    Returns:
        The statistic, or None of nothing.

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
    """Put a group into numbers.

    Args:
        group: The group.
        measure: What its task is compared by.
    """
    stats = {
        name: stat(value(run, measure) for run in group.runs) for name, value in COLUMNS.items()
    }
    return Summary(group, Counter(run.state for run in group.runs), stats)


def differ(one: Stat, other: Stat, *, cost: bool) -> bool:
    """Tell whether two means differ by more than chance would make them.

    By more than their two deviations; and by ``NOTICEABLE`` if it is a cost, or if there is one
    seed only, which has no deviation.

    Example:
        >>> differ(Stat(0.98, 0.001, 3), Stat(0.97, 0.001, 3), cost=False)
        True
        >>> differ(Stat(0.98, 0.001, 3), Stat(0.97, 0.01, 3), cost=False)
        False
        >>> differ(Stat(1.00, 0.001, 3), Stat(1.01, 0.001, 3), cost=True)
        False
    """
    distance = abs(one.mean - other.mean)
    least = NOTICEABLE * max(abs(one.mean), abs(other.mean))
    relative = cost or min(one.count, other.count) == 1
    return distance > one.sd + other.sd and (distance >= least or not relative)
