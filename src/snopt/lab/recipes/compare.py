"""The same task by several optimizers: same initial weights, same order of the data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from snopt.lab.config import Experiment
from snopt.lab.recipes.run import evaluations, recorded, run
from snopt.lab.train import Listener, Outcome

__all__ = ["Row", "Run", "Table", "compare", "schedule", "table"]


@dataclass(frozen=True)
class Run:
    """One run of a comparison.

    Attributes:
        config: what is run.
        folder: where its record goes.
    """

    config: Experiment
    folder: Path

    @property
    def label(self) -> str:
        """What to call it on the screen."""
        return f"{self.config.optimizer.name}, seed {self.config.train.seed}"


def schedule(configs: Sequence[Experiment], seeds: int, out: str | Path) -> list[Run]:
    """Put the runs of a comparison in order.

    Seeds are the outer loop, optimizers the inner one, and each seed begins with another
    optimizer: whatever slows the machine down for a while hits all of them alike.

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
    runs = []
    for k in range(seeds):
        turn = k % len(configs)
        for config in [*configs[turn:], *configs[:turn]]:
            seed = config.train.seed + k
            folder = Path(out) / config.task / f"{config.optimizer.name}-seed{seed}"
            runs.append(Run(replace(config, train=replace(config.train, seed=seed)), folder))
    return runs


def compare(
    runs: Iterable[Run], *, watch: Callable[[Run], Sequence[Listener]] = lambda _: ()
) -> list[tuple[Run, Outcome]]:
    """Run a comparison; runs that were begun earlier are gone on with, finished ones read.

    Args:
        runs: from :func:`schedule`.
        watch: makes the listeners of each run.

    Returns:
        Each run with its outcome. The list ends early if a run was interrupted.
    """
    done = []
    for each in runs:
        outcome = recorded(each.config, each.folder)
        if outcome is None:
            outcome = run(each.config, each.folder, resume=True, listeners=watch(each))
        done.append((each, outcome))
        if outcome.status == "interrupted":
            break
    return done


@dataclass(frozen=True)
class Row:
    """One optimizer's line in the table of a comparison: means over seeds.

    Attributes:
        optimizer: its name.
        lr: its learning rate.
        seeds: how many runs.
        final: the test metric at the end.
        spread: its standard deviation.
        best: the best validation metric.
        to_target: iterations until the table's target.
        seconds_to_target: seconds of training until then.
        iterations: updates made.
        seconds: seconds of training.
        trouble: how runs ended that did not end well.
    """

    optimizer: str
    lr: float
    seeds: int
    final: float | None
    spread: float | None
    best: float | None
    to_target: float | None
    seconds_to_target: float | None
    iterations: float
    seconds: float
    trouble: str


@dataclass(frozen=True)
class Table:
    """The outcome of a comparison.

    Attributes:
        metric: what is compared.
        target: what the last run to get there still reached: the worst of all runs' best values.
        rows: one an optimizer.
    """

    metric: str
    target: float | None
    rows: list[Row]


def table(done: Sequence[tuple[Run, Outcome]]) -> Table:
    """Gather a comparison's outcomes.

    Args:
        done: from :func:`compare`, one run at least.
    """
    config = done[0][0].config
    bests = [outcome.best for _, outcome in done if outcome.best is not None]
    worst = min if config.mode == "max" else max
    target = worst(bests) if bests else None
    names = dict.fromkeys(run.config.optimizer.name for run, _ in done)
    groups = [[pair for pair in done if pair[0].config.optimizer.name == name] for name in names]
    return Table(config.metric, target, [_row(group, target) for group in groups])


def _row(done: Sequence[tuple[Run, Outcome]], target: float | None) -> Row:
    config, outcomes = done[0][0].config, [outcome for _, outcome in done]
    metric = config.metric
    finals = [o.last["test"][metric] for o in outcomes if metric in o.last.get("test", {})]
    bests = [o.best for o in outcomes if o.best is not None]
    waits = [first_at(run.folder, config, target) for run, _ in done]
    iterations, seconds = ([wait[k] for wait in waits if wait is not None] for k in (0, 1))
    return Row(
        optimizer=config.optimizer.name,
        lr=config.optimizer.lr,
        seeds=len(done),
        final=statistics.fmean(finals) if finals else None,
        spread=statistics.stdev(finals) if len(finals) > 1 else None,
        best=statistics.fmean(bests) if bests else None,
        to_target=statistics.fmean(iterations) if iterations else None,
        seconds_to_target=statistics.fmean(seconds) if seconds else None,
        iterations=statistics.fmean(o.iteration for o in outcomes),
        seconds=statistics.fmean(o.seconds for o in outcomes),
        trouble=", ".join(
            f"seed {run.config.train.seed} {outcome.status}"
            for run, outcome in done
            if outcome.status in ("diverged", "interrupted")
        ),
    )


def first_at(folder: Path, config: Experiment, target: float | None) -> tuple[int, float] | None:
    """Return iteration and seconds of the first evaluation at which a run had reached a target."""
    for iteration, seconds, value in evaluations(folder, config.metric):
        if target is not None and (value >= target if config.mode == "max" else value <= target):
            return iteration, seconds
    return None
