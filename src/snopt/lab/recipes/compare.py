"""Train the same task with several optimizers: same initial weights, same order of the data."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from snopt.lab.config import Experiment
from snopt.lab.recipes.run import Run, Watch, evaluations, seeded
from snopt.lab.table import Cell, Table, short
from snopt.lab.train import Outcome


def schedule(configs: Sequence[Experiment], seeds: int, out: str | Path) -> list[Run]:
    """Return the runs of a comparison in order (see :func:`snopt.lab.recipes.run.seeded`).

    Args:
        configs: one experiment per optimizer.
        seeds: number of seeds, counted from the experiments' own.
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
    """Run a comparison: resume runs that were stopped, and read those that are complete.

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
    """Return a table with one row of means over seeds per optimizer.

    The target is the worst of all runs' best values, so that every run reached it.

    Args:
        done: from :func:`compare`, at least one run.
    """
    config = done[0][0].config
    bests = [outcome.best for _, outcome in done if outcome.best is not None]
    target = (min if config.mode == "max" else max)(bests, default=None)
    columns = [
        "optimizer", "lr", f"test {config.metric}", "best valid", f"iter to {short(target)}",
        "s to it", "seconds",
    ]  # fmt: skip
    groups: dict[str, list[tuple[Run, Outcome]]] = {}
    for run, outcome in done:
        groups.setdefault(run.config.optimizer.name, []).append((run, outcome))
    return Table("Means over seeds.", columns, [_row(group, target) for group in groups.values()])


def _row(done: Sequence[tuple[Run, Outcome]], target: float | None) -> list[Cell]:
    config, outcomes = done[0][0].config, [outcome for _, outcome in done]
    finals = [o.last.get("test", {}).get(config.metric) for o in outcomes]
    known = [value for value in finals if value is not None]
    waits = [wait for run, _ in done if (wait := first_at(run, target)) is not None]
    return [
        config.optimizer.name,
        f"{config.optimizer.lr:g}",
        _mean(known) + (f" ± {statistics.stdev(known):.2g}" if len(known) > 1 else ""),
        _mean([o.best for o in outcomes if o.best is not None]),
        _mean([iteration for iteration, _ in waits]),
        _mean([seconds for _, seconds in waits]),
        f"{statistics.fmean(o.seconds for o in outcomes):.1f}",
    ]


def _mean(values: Sequence[float]) -> str:
    return short(statistics.fmean(values) if values else None)


def troubles(done: Sequence[tuple[Run, Outcome]]) -> list[str]:
    """Return one line per run that diverged or was interrupted."""
    return [
        f"{run.label}: {outcome.status}"
        for run, outcome in done
        if outcome.status in ("diverged", "interrupted")
    ]


def first_at(run: Run, target: float | None) -> tuple[int, float] | None:
    """Return iteration and seconds of the first evaluation that reached a target."""
    sign = 1 if run.config.mode == "max" else -1
    for iteration, seconds, value in evaluations(run.folder, run.config.metric):
        if target is not None and sign * value >= sign * target:
            return iteration, seconds
    return None
