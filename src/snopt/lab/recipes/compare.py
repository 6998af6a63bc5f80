"""Train the same task with several optimizers: same initial weights, same order of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from snopt.lab.config import Experiment
from snopt.lab.recipes.run import Run, Watch, seeded
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


def troubles(done: Sequence[tuple[Run, Outcome]]) -> list[str]:
    """Return one line per run that diverged or was interrupted."""
    return [
        f"{run.label}: {outcome.status}"
        for run, outcome in done
        if outcome.status in ("diverged", "interrupted")
    ]
