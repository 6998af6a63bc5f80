"""Several ways to train the same thing: arms of a comparison, each with all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.optimizers import find
from snopt.lab.paper.item import Cell, Draw, Item, Job, Result, Space, Table
from snopt.lab.paper.jobs import Training, failure
from snopt.lab.paper.names import METHODS, TASKS, mean_of, stat_text
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import SEEDS, configuration, cut_notes
from snopt.lab.paper.tuning import tuned
from snopt.lab.recipes.run import recorded, seeded
from snopt.lab.report.read import Run, read_run
from snopt.lab.report.summary import Stat, seconds_per_iteration, stat

__all__ = [
    "OPTIMIZERS",
    "Arm",
    "Found",
    "arm_item",
    "arm_jobs",
    "arm_table",
    "beside",
    "cpu_seconds",
    "curves_by_arm",
    "finals",
    "finals_text",
    "main_arms",
    "methods_of",
    "missing",
    "missing_notes",
    "runs_of",
    "searched",
    "tasks_of",
    "trainings",
    "tuned_arms",
]

OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "sgd", "snopt_amortized", "snopt")
"""The paper's methods and SNOpt with its defaults."""
TUNED = "snopt_tuned"
"""SNOpt with a rate that was searched for, as the others' was."""
RIVALS = ("adam", "adamw", "sgd", "muon", "soap", "snopt_amortized", "snopt", TUNED)
"""The methods of the main comparison at scale ``cpu``."""
BY_DEFAULT: dict[Scale, tuple[str, ...]] = {
    # One of each kind.
    "smoke": ("mnist", "spoken_arabic_digits", "circle"),
    "cpu": tuple(TASKS),
    "full": tuple(TASKS),
}
"""Data sets that are looked at unless others are asked for."""
ROWS = {"snopt_amortized": "snopt", "snopt": "", TUNED: ""}
"""Rows of the paper's tables that have another name; its SNOpt is Algorithm 2."""


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        name: names its folders.
        config: the experiment, of whatever seed.
        row: its row in the paper's tables; empty if it has none.
        title: what it is called in tables and figures.
        tuning: what is to be done before ``config`` is more than a guess.
    """

    name: str
    config: Experiment
    row: str = ""
    title: str = ""
    tuning: tuple[Job, ...] = ()

    def folder(self, space: Space, seed: int) -> Path:
        """Return the run folder of one seed."""
        return space.run(self.config.task, self.name, seed)


ArmsOf: TypeAlias = Callable[[Space, str], list[Arm]]
"""The arms of a data set."""
TasksOf: TypeAlias = Callable[[Space], list[str]]


def tasks_of(space: Space) -> list[str]:
    """Return the data sets to look at, in the paper's order."""
    wanted = space.tasks or BY_DEFAULT[space.scale]
    return [task for task in TASKS if task in wanted]


def methods_of(space: Space) -> list[str]:
    """Return the methods of the main comparison that can be run here."""
    wanted = RIVALS if space.scale == "cpu" else OPTIMIZERS
    return [name for name in wanted if name not in missing(wanted)]


def searched(space: Space) -> list[OptimizerName]:
    """Return the optimizers whose learning rate is searched for, for the main comparison."""
    names = methods_of(space)
    return ["snopt" if n == TUNED else n for n in names if n != "snopt" or TUNED not in names]


def missing(methods: Iterable[str]) -> list[str]:
    """Return the methods whose package is not installed."""
    return [name for name in methods if name != TUNED and not find(name).installed]


def missing_notes(methods: Iterable[str]) -> list[str]:
    """Say which methods are left out, and how to have them."""
    left_out = missing(methods)
    return [f"{METHODS[m]} is left out: `pip install {find(m).package}`." for m in left_out]


def tuned_arms(space: Space, task: str, methods: Iterable[str] = OPTIMIZERS) -> list[Arm]:
    """Return an arm for each method at its chosen rate; SNOpt's default form is not tuned."""
    arms = []
    for method in methods:
        jobs: tuple[Job, ...] = ()
        config = configuration(task, "snopt", space.scale)
        if method != "snopt":
            config, jobs = tuned(space, task, "snopt" if method == TUNED else method)
        arms.append(Arm(method, config, ROWS.get(method, method), METHODS[method], jobs))
    return arms


def main_arms(space: Space, task: str) -> list[Arm]:
    """Return the arms of the main comparison."""
    return tuned_arms(space, task, methods_of(space))


def trainings(space: Space, arms: Sequence[Arm]) -> list[Training]:
    """List the runs of some arms; whatever slows the machine down for a while hits all alike."""
    configs = [replace(a.config, train=replace(a.config.train, seed=0)) for a in arms]
    return [
        Training(config, arms[place].folder(space, config.train.seed), ready=not arms[place].tuning)
        for place, config in seeded(configs, SEEDS[space.scale])
    ]


def arm_jobs(space: Space, tasks: Iterable[str], arms_of: ArmsOf) -> list[Job]:
    """List what some data sets need: their tuning and their runs."""
    made: list[Job] = []
    for task in tasks:
        arms = arms_of(space, task)
        made += [job for arm in arms for job in arm.tuning]
        made += trainings(space, arms)
    return made


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


def cpu_seconds(run: Run) -> float | None:
    """Return the processor's seconds of a training; None of records that have none."""
    return next(reversed(run.records.steps.values.get("cpu_seconds", ())), None)


Column: TypeAlias = Callable[[Found], Cell]
COLUMNS: dict[str, Column] = {
    "data set": lambda found: TASKS[found.arm.config.task],
    "method": lambda found: found.arm.title,
    "rate": lambda found: f"{found.arm.config.optimizer.lr:g}",
    "iterations": lambda found: found.arm.config.train.iterations,
    "test": lambda found: finals_text(found.space, found.arm),
    "test accuracy, %": lambda found: finals_text(found.space, found.arm),
    "seconds an iteration": lambda found: mean_of(map(seconds_per_iteration, found.runs)),
    "CPU seconds": lambda found: mean_of(map(cpu_seconds, found.runs)),
}
"""Columns that several tables have."""


def arm_table(caption: str, found: Iterable[Found], columns: Mapping[str, Column | None]) -> Table:
    """Make a table with a row an arm.

    Args:
        caption: what it shows.
        found: the rows.
        columns: what each column says; one of ``COLUMNS`` if None.
    """
    makers = [COLUMNS[name] if make is None else make for name, make in columns.items()]
    return Table(caption, list(columns), [[make(each) for make in makers] for each in found])


def beside(label: str) -> dict[str, Column | None]:
    """Return a column with the values of one of the paper's tables by method and data set."""
    paper = published(label)
    return {
        f"paper, Table {paper.number}": lambda found: paper.text(
            found.arm.row, found.arm.config.task
        )
    }


def arm_item(
    id: str,
    labels: tuple[str, ...],
    title: str,
    tasks: TasksOf,
    arms_of: ArmsOf,
    tables: Mapping[str, Mapping[str, Column | None]],
    *,
    notes: Callable[[Space], Sequence[str]] = lambda space: (),
    curves: Callable[[Space], dict[str, Any]] = lambda space: {},
    draw: Draw | None = None,
) -> Item:
    """Make an item that trains several arms on several data sets, with a row an arm.

    Args:
        id: what it is called on the command line.
        labels: its labels in the paper's source.
        title: what it shows.
        tasks: which data sets.
        arms_of: the arms of one.
        tables: by caption, what each column says; one of ``COLUMNS`` if None.
        notes: what a reader has to know, beside what was cut.
        curves: what the figure is drawn from.
        draw: draws it.
    """

    def result(space: Space) -> Result:
        wanted = tasks(space)
        found = [Found(space, arm) for task in wanted for arm in arms_of(space, task)]
        return Result(
            [arm_table(caption, found, columns) for caption, columns in tables.items()],
            [*notes(space), *cut_notes(wanted, space.scale)],
            curves(space),
        )

    def jobs(space: Space) -> list[Job]:
        return arm_jobs(space, tasks(space), arms_of)

    return Item(id, labels, title, jobs, result, draw)


def curves_by_arm(
    tasks: TasksOf, arms_of: ArmsOf, of_arm: Callable[[Found], Any]
) -> Callable[[Space], dict[str, Any]]:
    """Make the curves of an item: by data set and by title of the arm."""

    def curves(space: Space) -> dict[str, Any]:
        return {
            TASKS[task]: {arm.title: of_arm(Found(space, arm)) for arm in arms_of(space, task)}
            for task in tasks(space)
        }

    return curves
