"""The tables of a report as plain data, for HTML and Markdown alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from snopt.base.errors import unknown
from snopt.lab.report.groups import Group, group_runs
from snopt.lab.report.read import Run
from snopt.lab.report.summary import (
    Measure,
    Stat,
    Summary,
    best_value,
    final_value,
    measure_of,
    summarize,
)
from snopt.lab.table import Cell, Table

NOTHING = "–"


class Marked(str):
    """Text of a cell that has a note in small print, or is the best of its column."""

    note: str
    best: bool

    def __new__(cls, text: str, note: str = "", best: bool = False) -> Marked:
        """Attach the marks to a text."""
        made = super().__new__(cls, text)
        made.note, made.best = note, best
        return made


@dataclass(frozen=True)
class Comparison:
    """The runs of one task, side by side.

    Attributes:
        task: Name of the task.
        groups: Its groups.
        measure: What they are compared by.
        summaries: One per group.
    """

    task: str
    groups: list[Group]
    measure: Measure
    summaries: list[Summary]


def compare(
    runs: Iterable[Run], *, baseline: str | None = None, target: float | None = None
) -> list[Comparison]:
    """Set the runs of each task side by side.

    Args:
        runs: The runs.
        baseline: Label of the group that ratios refer to; default Adam.
        target: Value of the metric whose time is taken; default that of the training.

    Raises:
        UnknownName: No task has a group of the label ``baseline``.
    """
    by_task = group_runs(runs)
    labels = {group.label for groups in by_task.values() for group in groups}
    if baseline is not None and baseline not in labels:
        raise unknown("baseline", baseline, labels)
    found = []
    for task, groups in by_task.items():
        measure = measure_of(groups, baseline=baseline, target=target)
        summaries = [summarize(group, measure) for group in groups]
        found.append(Comparison(task, groups, measure, summaries))
    return found


def number_text(value: float) -> str:
    """A number with four digits that mean something.

    Example:
        >>> [number_text(x) for x in (0.98765, 1234.5, 0.0000123, 20000.0, float("nan"))]
        ['0.9877', '1234', '1.23e-05', '20000', 'nan']
    """
    if math.isfinite(value) and 1000 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.4g}"


def stat_text(stat: Stat | None) -> str:
    """Mean and deviation, with the digits that the deviation leaves to the mean.

    Example:
        >>> stat_text(Stat(0.98213, 0.00321, 3)), stat_text(Stat(12.0, 0.0, 1)), stat_text(None)
        ('0.9821 ± 0.0032', '12', '–')
    """
    if stat is None:
        return NOTHING
    if stat.sd == 0 or not 1e-3 <= abs(stat.mean) < 1e7:
        return number_text(stat.mean) + (f" ± {stat.sd:.2g}" if stat.sd else "")
    # Two digits of the deviation, but no more than four or so of the mean.
    decimals = 1 - math.floor(math.log10(stat.sd))
    decimals = max(0, min(decimals, 3 - math.floor(math.log10(abs(stat.mean)))))
    sd = f"{stat.sd:.{decimals}f}"
    return f"{stat.mean:.{decimals}f} ± {sd if float(sd) else f'{stat.sd:.0e}'}"


def summary_table(comparison: Comparison) -> Table:
    """One row per optimizer."""
    measure, summaries = comparison.measure, comparison.summaries
    base = next(row for row in summaries if row.group.label == measure.baseline)
    columns: dict[str, list[Cell]] = {
        "optimizer": [row.group.label for row in summaries],
        "seeds": [Marked(str(len(row.group.runs)), _states_text(row)) for row in summaries],
    }

    def add(heading: str, pick: Callable[[Summary], Stat | None], mode: str, ratio: bool) -> None:
        cells = _cells(summaries, pick, mode, pick(base) if ratio else None)
        if any(cell != NOTHING for cell in cells):
            columns[heading] = cells

    add(f"final {measure.final_split} {measure.metric}", lambda row: row.final, measure.mode, False)
    add(f"best {measure.split} {measure.metric}", lambda row: row.best, measure.mode, False)
    add("seconds to target", lambda row: row.seconds_to_target, "min", True)
    add("iterations to target", lambda row: row.iterations_to_target, "min", True)
    add("seconds / iteration", lambda row: row.seconds_per_iteration, "min", True)
    add("NFE forward", lambda row: row.nfe_forward, "min", True)
    add("NFE backward", lambda row: row.nfe_backward, "min", True)
    add("memory, MB", lambda row: row.memory_mb, "min", True)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Table(_summary_caption(measure), list(columns), rows)


def _summary_caption(measure: Measure) -> str:
    target = f"Target: {measure.target_text} ({measure.origin}). " if measure.target_text else ""
    return (
        f"{target}Mean ± standard deviation over seeds; × is the ratio to {measure.baseline}. "
        "Seconds count training, not evaluation. An iteration's seconds and evaluations of the "
        "field (NFE) are medians over the run, memory is the peak."
    )


def _cells(
    summaries: Sequence[Summary],
    pick: Callable[[Summary], Stat | None],
    mode: str,
    base: Stat | None,
) -> list[Cell]:
    stats = [pick(row) for row in summaries]
    # Best can only be what all seeds have taken part in, and where all are alike, none is.
    whole = [
        stat.mean
        for row, stat in zip(summaries, stats, strict=True)
        if stat is not None and stat.count == len(row.group.runs)
    ]
    best = (max if mode == "max" else min)(whole, default=None)
    cells: list[Cell] = []
    for row, stat in zip(summaries, stats, strict=True):
        if stat is None:
            cells.append(NOTHING)
            continue
        seeds = len(row.group.runs)
        notes = []
        if base is not None and stat is not base and base.mean > 0:
            notes.append(f"{stat.mean / base.mean:.2f}×")
        if stat.count < seeds:
            notes.append(f"{stat.count} of {seeds} seeds")
        is_best = stat.count == seeds and stat.mean == best and len(set(whole)) > 1
        cells.append(Marked(stat_text(stat), ", ".join(notes), is_best))
    return cells


def _states_text(row: Summary) -> str:
    if len(row.states) == 1:
        return next(iter(row.states))
    return ", ".join(f"{count} {state}" for state, count in row.states.items())


def runs_table(comparisons: Sequence[Comparison]) -> Table:
    """One row per run.

    Returns:
        The table, in the order of the comparisons.
    """
    rows: list[list[Cell]] = [
        [
            comparison.task,
            group.label,
            NOTHING if run.seed is None else str(run.seed),
            Marked(run.state, "see problems" if run.problems else ""),
            *_progress(run),
            _value_text(final_value(run, comparison.measure)),
            _value_text(best_value(run, comparison.measure)),
            "/".join(run.folder.parts[-2:]),
        ]
        for comparison in comparisons
        for group in comparison.groups
        for run in group.runs
    ]
    columns = ["task", "optimizer", "seed", "state", "iterations", "seconds"]
    return Table("", [*columns, "final metric", "best metric", "folder"], rows)


def _progress(run: Run) -> tuple[str, str]:
    steps = run.records.steps
    if not steps:
        return NOTHING, NOTHING
    return str(steps[-1].iteration), number_text(steps[-1].seconds)


def _value_text(value: float | None) -> str:
    return NOTHING if value is None else number_text(value)


def problems_table(runs: Sequence[Run]) -> Table | None:
    """What was missing or damaged.

    Returns:
        A row per problem, or None without problems.
    """
    rows: list[list[Cell]] = [[str(run.folder), text] for run in runs for text in run.problems]
    return Table("", ["folder", "problem"], rows) if rows else None


def headline(comparison: Comparison) -> str:
    """The comparison in a sentence.

    Returns:
        Who reached the target first and how the baseline fared, or who came out best.
    """
    measure = comparison.measure
    by_label = {row.group.label: row for row in comparison.summaries}
    timed = {
        label: row.seconds_to_target
        for label, row in by_label.items()
        # A mean over the lucky seeds alone is no time to boast of.
        if row.seconds_to_target and row.seconds_to_target.count == len(row.group.runs)
    }
    if len(timed) < 2 or not measure.target_text:
        return _best_final(comparison)
    first = min(timed, key=lambda label: timed[label].mean)
    others = sorted((label for label in timed if label != first), key=lambda k: timed[k].mean)
    rivals = [measure.baseline] if measure.baseline in others else others[:1]
    told = ", ".join(
        f"{label} took {timed[label].mean / timed[first].mean:.2f} times as long"
        for label in rivals
        if timed[first].mean > 0
    )
    sentence = f"{first} was first to {measure.target_text}, in {timed[first].mean:.3g} s"
    return f"{sentence}; {told}." if told else f"{sentence}."


def _best_final(comparison: Comparison) -> str:
    measure = comparison.measure
    finals = {row.group.label: row.final.mean for row in comparison.summaries if row.final}
    if not finals:
        return "Nothing has been evaluated yet."
    pick = max if measure.mode == "max" else min
    best = pick(finals, key=lambda label: finals[label])
    value = f"{measure.final_split} {measure.metric} {number_text(finals[best])}"
    if len(finals) == 1:
        return f"{best}: {value}."
    alike = len(set(finals.values())) == 1
    return f"All ended with {value}." if alike else f"{best} ended with the best: {value}."
