"""Several ways to train the same thing: arms of a comparison, each with all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.item import Cell, Job, Space, Table
from snopt.lab.paper.jobs import Training, failure
from snopt.lab.paper.names import METHODS, TASKS, mean_of, stat_text
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import SEEDS
from snopt.lab.paper.tuning import tuned
from snopt.lab.recipes.run import recorded, seeded
from snopt.lab.report.read import Run, read_run
from snopt.lab.report.summary import Stat, seconds_per_iteration, stat

__all__ = [
    "OPTIMIZERS",
    "Arm",
    "Found",
    "arm_jobs",
    "arm_table",
    "arms_of_all",
    "beside",
    "finals",
    "finals_text",
    "runs_of",
    "tasks_of",
    "trainings",
    "tuned_arms",
]

OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "sgd", "snopt_amortized", "snopt")
BY_DEFAULT: dict[Scale, tuple[str, ...]] = {
    # One of each kind.
    "smoke": ("mnist", "spoken_arabic_digits", "circle"),
    # Without SVHN and Gas, of which a little and nothing is at hand.
    "cpu": tuple(task for task in TASKS if task not in ("svhn", "gas")),
    "full": tuple(TASKS),
}
"""Data sets that are looked at unless others are asked for."""
ROWS = {"snopt_amortized": "snopt", "snopt": ""}
"""Rows of the paper's tables that have another name; its SNOpt is Algorithm 2."""


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        name: names its folders, and its line in a table or figure.
        config: the experiment, of whatever seed.
        row: its row in the paper's tables; empty if it has none.
        words: what its name in a table adds to that of its optimizer.
    """

    name: str
    config: Experiment
    row: str = ""
    words: str = ""

    @property
    def title(self) -> str:
        """What it is called in a table."""
        return METHODS[self.config.optimizer.name] + self.words

    def folder(self, space: Space, seed: int) -> Path:
        """Return the run folder of one seed."""
        return space.run(self.config.task, self.name, seed)


ArmsOf: TypeAlias = Callable[[Space, str], tuple[list[Arm], list[Job]]]
"""The arms of a data set that are known, and the tuning that is still to do."""


def tasks_of(space: Space) -> list[str]:
    """Return the data sets to look at, in the paper's order."""
    wanted = space.tasks or BY_DEFAULT[space.scale]
    return [task for task in TASKS if task in wanted]


def tuned_arms(
    space: Space, task: str, optimizers: Iterable[OptimizerName] = OPTIMIZERS
) -> tuple[list[Arm], list[Job]]:
    """Return an arm for each optimizer at its chosen rate, and the tuning that is still to do."""
    arms, waiting = [], []
    for optimizer in optimizers:
        config, jobs = tuned(space, task, optimizer)
        waiting += jobs
        if config is not None:
            arms.append(Arm(optimizer, config, ROWS.get(optimizer, optimizer)))
    return arms, waiting


def trainings(space: Space, arms: Sequence[Arm]) -> list[Training]:
    """List the runs of some arms; whatever slows the machine down for a while hits all alike."""
    configs = [replace(a.config, train=replace(a.config.train, seed=0)) for a in arms]
    return [
        Training(config, arms[place].folder(space, config.train.seed))
        for place, config in seeded(configs, SEEDS[space.scale])
    ]


def arm_jobs(space: Space, tasks: Iterable[str], arms_of: ArmsOf) -> list[Job]:
    """List what some data sets need: their tuning, and when that is done their runs."""
    made: list[Job] = []
    for task in tasks:
        arms, waiting = arms_of(space, task)
        made += waiting or trainings(space, arms)
    return made


def arms_of_all(space: Space, tasks: Iterable[str], arms_of: ArmsOf) -> list[Arm]:
    """List the arms of some data sets."""
    return [arm for task in tasks for arm in arms_of(space, task)[0]]


def runs_of(space: Space, arm: Arm) -> list[Run]:
    """Read the records of an arm, one run a seed."""
    return [read_run(arm.folder(space, seed)) for seed in range(SEEDS[space.scale])]


def finals(space: Space, arm: Arm) -> Stat | None:
    """Return the test metric at the end of an arm's runs, over the seeds that got there."""
    values = []
    for job in trainings(space, [arm]):
        outcome = None if failure(job.folder) else recorded(job.config, job.folder)
        if outcome is not None:
            values.append(outcome.last.get("test", {}).get(arm.config.metric))
    return stat(values)


def finals_text(space: Space, arm: Arm) -> str:
    """Write the test metric at the end of an arm's runs, and how many got there if not all did."""
    found, seeds = finals(space, arm), SEEDS[space.scale]
    text = stat_text(found, arm.config.metric)
    return text if found is None or found.count == seeds else f"{text} ({found.count} of {seeds})"


# -------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Found:
    """What an arm came to, for a row of a table.

    Attributes:
        space: where the records are.
        arm: the arm.
    """

    space: Space
    arm: Arm

    @cached_property
    def runs(self) -> list[Run]:
        """Its records."""
        return runs_of(self.space, self.arm)


Column: TypeAlias = Callable[[Found], Cell]
COLUMNS: dict[str, Column] = {
    "data set": lambda found: TASKS[found.arm.config.task],
    "method": lambda found: found.arm.title,
    "rate": lambda found: f"{found.arm.config.optimizer.lr:g}",
    "iterations": lambda found: found.arm.config.train.iterations,
    "test": lambda found: finals_text(found.space, found.arm),
    "test accuracy, %": lambda found: finals_text(found.space, found.arm),
    "seconds an iteration": lambda found: mean_of(map(seconds_per_iteration, found.runs)),
}
"""Columns that several tables have."""


def arm_table(
    caption: str, space: Space, arms: Iterable[Arm], columns: Mapping[str, Column | None]
) -> Table:
    """Make a table with a row an arm.

    Args:
        caption: what it shows.
        space: where the records are.
        arms: the rows.
        columns: what each column says; one of ``COLUMNS`` if None.
    """
    makers = [COLUMNS[name] if make is None else make for name, make in columns.items()]
    found = [Found(space, arm) for arm in arms]
    return Table(caption, list(columns), [[make(each) for make in makers] for each in found])


def beside(label: str) -> dict[str, Column | None]:
    """Return a column with the values of one of the paper's tables by method and data set."""
    paper = published(label)
    return {
        f"paper, Table {paper.number}": lambda found: paper.text(
            found.arm.row, found.arm.config.task
        )
    }
