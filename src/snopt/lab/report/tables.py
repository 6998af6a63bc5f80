"""The tables of a report as plain data, for HTML and Markdown."""

from __future__ import annotations

import math
from collections import Counter
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
from snopt.lab.table import Cell, Table, number_text


class Marked(str):
    """Text of a cell that has a note in small print, or is the best of its column."""

    note: str
    best: bool

    def __new__(cls, text: str, note: str = "", best: bool = False) -> Marked:
        """Return the text with a note and a mark for the best value."""
        made = super().__new__(cls, text)
        made.note, made.best = note, best
        return made


@dataclass(frozen=True)
class Comparison:
    """The groups of runs of one task, side by side, in the order of the tables."""

    task: str
    measure: Measure
    groups: list[Summary]

    @property
    def runs(self) -> list[tuple[Group, Run]]:
        """Every run, with its group."""
        return [(group, run) for group in self.groups for run in group.runs]


def compare(
    runs: Iterable[Run], *, baseline: str | None = None, target: float | None = None
) -> list[Comparison]:
    """Compare the runs of each task.

    ``baseline`` and ``target`` are those of :func:`snopt.lab.report.write_report`.

    Raises:
        UnknownName: no task has a group with the label ``baseline``.
    """
    by_task = group_runs(runs)
    labels = {group.label for groups in by_task.values() for group in groups}
    if baseline is not None and baseline not in labels:
        raise unknown("baseline", baseline, labels)
    found = []
    for task, groups in by_task.items():
        measure = measure_of(groups, baseline=baseline, target=target)
        found.append(Comparison(task, measure, [summarize(group, measure) for group in groups]))
    return found


def stat_text(stat: Stat | None) -> str:
    """Format mean and deviation, with as many digits as the deviation justifies.

    Example:
        >>> stat_text(Stat(0.98213, 0.00321, 3)), stat_text(Stat(12.0, 0.0, 1)), stat_text(None)
        ('0.9821 ± 0.0032', '12', '-')
    """
    if stat is None:
        return number_text(None)
    if stat.sd == 0 or not 1e-3 <= abs(stat.mean) < 1e7:
        return number_text(stat.mean) + (f" ± {stat.sd:.2g}" if stat.sd else "")
    # Two digits of the deviation, but no more than four or so of the mean.
    decimals = 1 - math.floor(math.log10(stat.sd))
    decimals = max(0, min(decimals, 3 - math.floor(math.log10(abs(stat.mean)))))
    sd = f"{stat.sd:.{decimals}f}"
    return f"{stat.mean:.{decimals}f} ± {sd if float(sd) else f'{stat.sd:.0e}'}"


def summary_table(comparison: Comparison) -> Table:
    """Return a table with one row per optimizer."""
    measure, groups = comparison.measure, comparison.groups
    columns: dict[str, list[Cell]] = {
        "optimizer": [group.label for group in groups],
        "seeds": [Marked(str(len(group.runs)), _states_text(group)) for group in groups],
    }
    headings = {
        "final": f"final {measure.final_split} {measure.metric}",
        "best": f"best {measure.split} {measure.metric}",
    }
    for name in COLUMNS:
        if any(group.stats[name] is not None for group in groups):
            columns[headings.get(name, name)] = _cells(comparison, name)
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    return Table(_summary_caption(measure), list(columns), rows)


def _summary_caption(measure: Measure) -> str:
    target = f"Target: {measure.target_text} ({measure.origin}). " if measure.target_text else ""
    return (
        f"{target}Mean ± standard deviation over seeds; × is the ratio to {measure.baseline}. "
        "The best of a column is marked if it differs from all others by more than the "
        "deviations and by 2 %. Seconds count training, not evaluation. An iteration's seconds "
        "and evaluations of the field (NFE) are medians over the run, memory is the peak."
    )


def _cells(comparison: Comparison, name: str) -> list[Cell]:
    ranked = _ranked(comparison, name)
    clear = len(ranked) > 0 and all(differ(ranked[0][1], stat) for _, stat in ranked[1:])
    by_label = {group.label: group for group in comparison.groups}
    base = by_label[comparison.measure.baseline].stats[name]
    cells: list[Cell] = []
    for group in comparison.groups:
        stat, seeds, notes = group.stats[name], len(group.runs), []
        if stat is None:
            cells.append(None)
            continue
        if name in COSTS and base is not None and stat is not base and base.mean > 0:
            notes.append(f"{stat.mean / base.mean:.2f}×")
        if stat.count < seeds:
            notes.append(f"{stat.count} of {seeds} seeds")
        best = clear and group is ranked[0][0] and len(comparison.groups) > 1
        cells.append(Marked(stat_text(stat), ", ".join(notes), best))
    return cells


def _ranked(comparison: Comparison, name: str) -> list[tuple[Summary, Stat]]:
    """Return the groups of which every seed has a number, best first."""
    whole = [
        (group, stat) for group in comparison.groups if (stat := group.whole(name)) is not None
    ]
    most = name not in COSTS and comparison.measure.mode == "max"
    return sorted(whole, key=lambda pair: pair[1].mean, reverse=most)


def _states_text(group: Group) -> str:
    states = Counter(run.state for run in group.runs)
    if len(states) == 1:
        return next(iter(states))
    return ", ".join(f"{count} {state}" for state, count in states.items())


def runs_table(comparisons: Sequence[Comparison]) -> Table:
    """Return a table with one row per run."""
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        for group, run in comparison.runs:
            steps, measure = run.records.steps, comparison.measure
            iteration, seconds = (column[-1:] for column in (steps.iteration, steps.seconds))
            rows.append(
                [
                    comparison.task,
                    group.label,
                    None if run.seed is None else str(run.seed),
                    Marked(run.state, "see problems" if run.problems else ""),
                    str(iteration[0]) if iteration else None,
                    number_text(seconds[0]) if seconds else None,
                    number_text(final_value(run, measure)),
                    number_text(best_value(run, measure)),
                    "/".join(run.folder.parts[-2:]),
                ]
            )
    columns = ["task", "optimizer", "seed", "state", "iterations", "seconds"]
    return Table("", [*columns, "final metric", "best metric", "folder"], rows)


def problems_table(runs: Sequence[Run]) -> Table | None:
    """Return a table with one row per problem; None without problems."""
    rows: list[list[Cell]] = [[str(run.folder), text] for run in runs for text in run.problems]
    return Table("", ["folder", "problem"], rows) if rows else None


def _missed(groups: Sequence[Group]) -> str:
    """Return a sentence about the groups that did not reach the target."""
    if not groups:
        return ""
    labels = " and ".join(group.label for group in groups)
    if all(len(group.runs) == 1 for group in groups):
        return f" {labels} did not reach it."
    return f" Not every seed of {labels} reached it."


def _ending(comparison: Comparison, besides: Summary | None = None) -> str:
    """Return a sentence about the group with the best final value, if it is clearly the best."""
    ranked, measure = _ranked(comparison, "final"), comparison.measure
    if len(ranked) < 2 or ranked[0][0] is besides:
        return ""
    (best, top), *others = ranked
    if not all(differ(top, stat) for _, stat in others):
        return ""
    value = f"{best.label} {stat_text(top)}"
    return f" Best final {measure.final_split} {measure.metric}: {value}."


def headline(comparison: Comparison) -> str:
    """Return a sentence on which group reached the target first, or else ended best.

    No group is named if others are within the spread over seeds or 2 %. If another group ended
    clearly better than the fastest, a second sentence says so.
    """
    measure, groups = comparison.measure, comparison.groups
    name, what, unit = "seconds to target", f"time to {measure.target_text}", " s"
    late = [group for group in groups if group.whole(name) is None]
    timed = len(groups) - len(late) > 1 and bool(measure.target_text)
    if not timed:
        name, what, unit, late = "final", f"{measure.final_split} {measure.metric}", "", []
    some = [(group, stat) for group in groups if (stat := group.stats[name]) is not None]
    ranked = _ranked(comparison, name) or some[:1]
    if not ranked:
        return "Nothing has been evaluated yet."
    (best, top), *others = ranked

    def told(group: Group, stat: Stat) -> str:
        return f"{group.label} {stat_text(stat)}{unit}"

    missed = _missed(late)
    if not others:
        return f"{what[0].upper()}{what[1:]}: {told(best, top)}.{missed}"
    rivals = [pair for pair in others if not differ(top, pair[1])]
    if rivals:
        listed = ", ".join(told(*pair) for pair in ((best, top), *rivals))
        ending = _ending(comparison) if timed else ""
        return f"Similar {what}, within the spread or 2 %: {listed}.{missed}{ending}"
    if not timed:
        return f"Best {what}: {told(best, top)}."
    rival, slow = next((p for p in others if p[0].label == measure.baseline), others[0])
    ratio = f"{slow.mean / top.mean:.2f} times as long" if top.mean else stat_text(slow) + unit
    shortest = f"Shortest {what}: {told(best, top)}; {rival.label} took {ratio}."
    return f"{shortest}{missed}{_ending(comparison, besides=best)}"
