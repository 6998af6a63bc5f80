"""The tables of a report as plain data, for HTML and Markdown alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from snopt.base.errors import unknown
from snopt.lab.report.groups import Group, group_runs
from snopt.lab.report.read import Run
from snopt.lab.report.summary import (
    COLUMNS,
    COSTS,
    Measure,
    Stat,
    Summary,
    best_value,
    differ,
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
    columns: dict[str, list[Cell]] = {
        "optimizer": [row.group.label for row in summaries],
        "seeds": [Marked(str(len(row.group.runs)), _states_text(row)) for row in summaries],
    }
    headings = {
        "final": f"final {measure.final_split} {measure.metric}",
        "best": f"best {measure.split} {measure.metric}",
    }
    for name in COLUMNS:
        if any(row.stats[name] is not None for row in summaries):
            columns[headings.get(name, name)] = _cells(comparison, name)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Table(_summary_caption(measure), list(columns), rows)


def _summary_caption(measure: Measure) -> str:
    target = f"Target: {measure.target_text} ({measure.origin}). " if measure.target_text else ""
    return (
        f"{target}Mean ± standard deviation over seeds; × is the ratio to {measure.baseline}. "
        "The best of a column is marked if it differs from all others by more than the "
        "deviations. Seconds count training, not evaluation. An iteration's seconds and "
        "evaluations of the field (NFE) are medians over the run, memory is the peak."
    )


def _cells(comparison: Comparison, name: str) -> list[Cell]:
    best, rivals = _winner(comparison, name)
    by_label = {row.group.label: row for row in comparison.summaries}
    base = by_label[comparison.measure.baseline].stats[name]
    cells: list[Cell] = []
    for row in comparison.summaries:
        stat, seeds, notes = row.stats[name], len(row.group.runs), []
        if stat is None:
            cells.append(NOTHING)
            continue
        if name in COSTS and base is not None and stat is not base and base.mean > 0:
            notes.append(f"{stat.mean / base.mean:.2f}×")
        if stat.count < seeds:
            notes.append(f"{stat.count} of {seeds} seeds")
        alone = row is best and not rivals and len(comparison.summaries) > 1
        cells.append(Marked(stat_text(stat), ", ".join(notes), alone))
    return cells


def _winner(comparison: Comparison, name: str) -> tuple[Summary | None, list[Summary]]:
    """Who is best in a column, of those whose seeds all have the number; and who is as good."""
    whole = [(row, stat) for row in comparison.summaries if (stat := row.whole(name)) is not None]
    if not whole:
        return None, []
    most = name not in COSTS and comparison.measure.mode == "max"
    best, top = (max if most else min)(whole, key=lambda pair: pair[1].mean)
    alike = [row for row, stat in whole if not differ(top, stat, cost=name in COSTS)]
    return best, [row for row in alike if row is not best]


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
    if not len(steps):
        return NOTHING, NOTHING
    return str(steps.iteration[-1]), number_text(steps.seconds[-1])


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
        Who reached the target first, or else who came out best, with the spread over seeds; no one
        is named the winner where others are within that spread.
    """
    name, measure = "seconds to target", comparison.measure
    timed = [row for row in comparison.summaries if row.whole(name) is not None]
    if len(timed) < 2 or not measure.target_text:
        return _best_final(comparison)
    best, rivals = _winner(comparison, name)
    assert best is not None
    others = sorted((row for row in timed if row is not best), key=lambda row: _mean(row, name))
    late = [row.group.label for row in comparison.summaries if row not in timed]
    missed = f" Not every seed of {_listed(late)} reached it." if late else ""
    if rivals:
        told = ", ".join(_told(row, name, " s") for row in (best, *rivals))
        return f"No clear first to {measure.target_text}: {told}.{missed}"
    baseline = [row for row in others if row.group.label == measure.baseline]
    told = "".join(
        f"; {row.group.label} took {_mean(row, name) / _mean(best, name):.2f} times as long"
        for row in baseline or others[:1]
        if _mean(best, name) > 0
    )
    time = f"{stat_text(best.stats[name])} s"
    return f"{best.group.label} was first to {measure.target_text}, in {time}{told}.{missed}"


def _best_final(comparison: Comparison) -> str:
    measure = comparison.measure
    ended = [row for row in comparison.summaries if row.stats["final"] is not None]
    best, rivals = _winner(comparison, "final")
    if not ended:
        return "Nothing has been evaluated yet."
    value = f"{measure.final_split} {measure.metric}"
    if best is None or len(ended) == 1:
        row = best or ended[0]
        return f"{row.group.label}: {value} {stat_text(row.stats['final'])}."
    if rivals:
        told = ", ".join(_told(row, "final") for row in (best, *rivals))
        return f"No clear best {value}: {told}."
    return f"{best.group.label} ended with the best {value}: {stat_text(best.stats['final'])}."


def _mean(row: Summary, name: str) -> float:
    stat = row.stats[name]
    return math.nan if stat is None else stat.mean


def _told(row: Summary, name: str, unit: str = "") -> str:
    return f"{row.group.label} {stat_text(row.stats[name])}{unit}"


def _listed(labels: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))
