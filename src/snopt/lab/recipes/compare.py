"""The same task by several optimizers: same initial weights, same order of the data."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from snopt.lab.config import Experiment
from snopt.lab.recipes.run import Run, Watch, evaluations, seeded
from snopt.lab.table import Cell, Table
from snopt.lab.train import Outcome

__all__ = ["Run", "compare", "schedule", "table", "troubles"]


def schedule(configs: Sequence[Experiment], seeds: int, out: str | Path) -> list[Run]:
    """Put the runs of a comparison in order (see :func:`snopt.lab.recipes.run.seeded`).

    Args:
        configs: one experiment an optimizer.
        seeds: how many seeds, counted from the experiments' own.
        out: parent of the run folders, ``out/<task>/<optimizer>-seed<k>``.

    Example:
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> runs = schedule([recipe("digits", "snopt"), recipe("digits", "adam")], 2, "out")
        >>> [run.label for run in runs]
        ['snopt, seed 0', 'adam, seed 0', 'adam, seed 1', 'snopt, seed 1']
    """
    return [
        Run(each, Path(out) / each.task / f"{each.optimizer.name}-seed{each.train.seed}")
        for _, each in seeded(configs, seeds)
    ]


def compare(runs: Iterable[Run], *, watch: Watch = lambda _: ()) -> list[tuple[Run, Outcome]]:
    """Run a comparison; runs that were begun earlier are gone on with, finished ones read.

    Args:
        runs: from :func:`schedule`.
        watch: makes the listeners of each run.

    Returns:
        Each run with its outcome. The list ends early if a run was interrupted.
    """
    done = []
    for each in runs:
        done.append((each, each.finish(watch)))
        if done[-1][1].status == "interrupted":
            break
    return done


def table(done: Sequence[tuple[Run, Outcome]]) -> Table:
    """Gather a comparison's outcomes: a row an optimizer, of means over seeds.

    The target is what the last run to get there still reached: the worst of all runs' best values.

    Args:
        done: from :func:`compare`, one run at least.
    """
    config = done[0][0].config
    bests = [outcome.best for _, outcome in done if outcome.best is not None]
    target = (min if config.mode == "max" else max)(bests, default=None)
    names = dict.fromkeys(run.config.optimizer.name for run, _ in done)
    groups = [[pair for pair in done if pair[0].config.optimizer.name == name] for name in names]
    columns = [
        "optimizer",
        "lr",
        f"test {config.metric}",
        "best valid",
        f"iter to {_short(target)}",
        "s to it",
        "seconds",
    ]
    return Table("Means over seeds.", columns, [_row(group, target) for group in groups])


def _row(done: Sequence[tuple[Run, Outcome]], target: float | None) -> list[Cell]:
    config, outcomes = done[0][0].config, [outcome for _, outcome in done]
    finals = [o.last.get("test", {}).get(config.metric) for o in outcomes]
    known = [value for value in finals if value is not None]
    waits = [wait for run, _ in done if (wait := first_at(run, target)) is not None]
    return [
        config.optimizer.name,
        f"{config.optimizer.lr:g}",
        _short(_mean(known)) + (f" ± {statistics.stdev(known):.2g}" if len(known) > 1 else ""),
        _short(_mean([o.best for o in outcomes if o.best is not None])),
        _short(_mean([iteration for iteration, _ in waits])),
        _short(_mean([seconds for _, seconds in waits])),
        f"{statistics.fmean(o.seconds for o in outcomes):.1f}",
    ]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def troubles(done: Sequence[tuple[Run, Outcome]]) -> list[str]:
    """Say of every run that did not end well how it ended."""
    return [
        f"{run.label}: {outcome.status}"
        for run, outcome in done
        if outcome.status in ("diverged", "interrupted")
    ]


def first_at(run: Run, target: float | None) -> tuple[int, float] | None:
    """Return iteration and seconds of the first evaluation at which a run had reached a target."""
    for iteration, seconds, value in evaluations(run.folder, run.config.metric):
        reached = target is not None and (
            value >= target if run.config.mode == "max" else value <= target
        )
        if reached:
            return iteration, seconds
    return None
