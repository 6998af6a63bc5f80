"""The numbers of the tables: pure functions of runs, and their means over seeds."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from snopt.lab.report.curves import STEPS, Quantity, table_of
from snopt.lab.report.groups import Group
from snopt.lab.report.read import Run
from snopt.lab.report.records import number

# Metrics to be made small, for runs whose config does not tell.
LESS_IS_BETTER = re.compile(r"loss|nll|bpd|err|mse|mae|rmse|perplexity|divergence", re.IGNORECASE)


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
    """A group in numbers; None where nothing was recorded.

    Attributes:
        group: The group.
        states: How many runs are in which state.
        final: The metric at the end.
        best: The best that was met on the way.
        seconds_to_target: Training seconds to the target, of the runs that reached it.
        iterations_to_target: Updates to the target, likewise.
        seconds_per_iteration: Median time of an update.
        nfe_forward: Median evaluations of the field in a forward pass.
        nfe_backward: The same in a backward pass.
        memory_mb: Peak memory.
    """

    group: Group
    states: Counter[str]
    final: Stat | None
    best: Stat | None
    seconds_to_target: Stat | None
    iterations_to_target: Stat | None
    seconds_per_iteration: Stat | None
    nfe_forward: Stat | None
    nfe_backward: Stat | None
    memory_mb: Stat | None


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
    recorded = Counter(
        split for run in runs for split, records in run.records.evals.items() for _ in records
    )
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
    measured = [
        name
        for run in runs
        for records in run.records.evals.values()
        for record in records
        for name in record.values
    ]
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
    places = np.array([(step.iteration, step.seconds) for step in steps], dtype=float)
    if len(places) < 2:
        return None
    iterations, seconds = np.diff(places, axis=0).T
    return float(np.median(seconds / iterations))


def median_of(run: Run, name: str) -> float | None:
    """Median over the updates of something recorded at each.

    Returns:
        The median, or None if it was not recorded.
    """
    values = table_of(run, Quantity(STEPS, name))[:, 2]
    return float(np.median(values)) if len(values) else None


def peak_of(run: Run, name: str) -> float | None:
    """Greatest value over the updates of something recorded at each.

    Returns:
        The maximum, or None if it was not recorded.
    """
    return max(table_of(run, Quantity(STEPS, name))[:, 2].tolist(), default=None)


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

    def over_seeds(of_run: Callable[[Run], float | None]) -> Stat | None:
        return stat(of_run(run) for run in group.runs)

    reached = [when for run in group.runs if (when := time_to_target(run, measure)) is not None]
    return Summary(
        group=group,
        states=Counter(run.state for run in group.runs),
        final=over_seeds(lambda run: final_value(run, measure)),
        best=over_seeds(lambda run: best_value(run, measure)),
        seconds_to_target=stat(seconds for seconds, _ in reached),
        iterations_to_target=stat(iterations for _, iterations in reached),
        seconds_per_iteration=over_seeds(seconds_per_iteration),
        nfe_forward=over_seeds(lambda run: median_of(run, "nfe_forward")),
        nfe_backward=over_seeds(lambda run: median_of(run, "nfe_backward")),
        memory_mb=over_seeds(lambda run: peak_of(run, "memory_mb")),
    )
