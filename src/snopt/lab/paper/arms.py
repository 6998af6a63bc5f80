"""The arms of a comparison: several ways to train the same model, each with all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from snopt.lab.config import Experiment, OptimizerName
from snopt.lab.optimizers import find
from snopt.lab.paper.curves import Curve, clock, cpu_table, curve, thinned
from snopt.lab.paper.item import Cell, Draw, Item, Result, Space, Table
from snopt.lab.paper.jobs import Job, Measurement, Training, failure
from snopt.lab.paper.names import METHODS, TASKS, TUNED, mean_of, metric_text, optimizer_of
from snopt.lab.paper.published import published
from snopt.lab.paper.rates import Rate, rate_job, rate_of
from snopt.lab.paper.scales import CUTS, FEW_SEEDS, POINTS, SEEDS, configuration, cut_notes
from snopt.lab.paper.tuning import FEWER, tuned
from snopt.lab.recipes.catalogue import Cut, shortened
from snopt.lab.recipes.run import recorded, seeded
from snopt.lab.report.read import Run, read_run
from snopt.lab.report.summary import Stat, seconds_per_iteration, stat

OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "sgd", "snopt_amortized", "snopt")
"""The paper's methods and SNOpt with its defaults."""
RIVALS = ("adam", "adamw", "sgd", "muon", "soap", "snopt_amortized", "snopt", TUNED)
"""The methods of the main comparison at scale ``cpu``."""
SMOKE_TASKS = ("mnist", "spoken_arabic_digits", "circle")
"""Data sets at scale ``smoke``, one of each kind, unless others are selected."""
DECAYS: dict[str, float] = dict.fromkeys(("muon", "soap"), 0.1)
"""Weight decay of rivals at scale ``cpu``, if it is better than that of the recipe in full runs
with all seeds. Short searches are no guide, because weight decay acts late."""
ROWS = {"snopt_amortized": "snopt", "snopt": "", TUNED: ""}
"""Rows of the paper's tables with another name; its SNOpt is Algorithm 2."""


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        space: where the records are.
        name: name of its folders.
        config: the experiment, with any seed.
        row: its row in the paper's tables; empty if it has none.
        title: its name in tables and figures.
        tuning: jobs that have to be done before ``config`` is more than a guess.
        few: whether two seeds are enough at scale ``cpu``.
        other: the same with another weight decay, which is not better or not run yet.
        costs: measures the seconds of its updates and evaluations; None: seconds are as recorded.
    """

    space: Space
    name: str
    config: Experiment
    row: str = ""
    title: str = ""
    tuning: tuple[Training, ...] = ()
    few: bool = False
    other: Arm | None = None
    costs: Measurement | None = None

    @property
    def seeds(self) -> int:
        """Number of seeds, from 0."""
        return FEW_SEEDS if self.few and self.space.scale == "cpu" else SEEDS[self.space.scale]

    @cached_property
    def jobs(self) -> list[Training]:
        """The trainings that are done, successfully or not."""
        return [job for job in trainings([self]) if job.done()]

    @cached_property
    def runs(self) -> list[Run]:
        """The records of the trainings that are done."""
        return [read_run(job.folder) for job in self.jobs]

    @cached_property
    def rate(self) -> Rate | None:
        """The seconds of its updates and evaluations, if they were measured."""
        return None if self.costs is None else rate_of(self.costs, self.config)

    def curve(self, split: str, name: str) -> Curve | None:
        """Average a recorded quantity over the seeds."""
        return curve(self.runs, split, name, self.rate)

    @cached_property
    def finals(self) -> Stat | None:
        """The test metric of the best model by validation (``cpu``) or of the last one."""
        return stat(map(_tested, self.jobs))

    @property
    def best_valid(self) -> Stat | None:
        """The best validation value of each training."""
        best = max if self.config.mode == "max" else min
        tables = [run.records.split("valid").table(self.config.metric) for run in self.runs]
        return stat(best(table[:, 2]) for table in tables if len(table))

    @property
    def cpu_seconds(self) -> list[float]:
        """The CPU seconds of each training."""
        tables = [clock(run, self.rate) for run in self.runs]
        return [float(table[-1, 1]) for table in tables if len(table)]

    @cached_property
    def compact(self) -> dict[str, Any]:
        """The metric, and for every run that is done its validation curve and test metric."""
        config, runs = self.config, []
        for job, run in zip(self.jobs, self.runs, strict=True):
            along = thinned(cpu_table(run, "valid", config.metric, self.rate))
            runs.append(
                {
                    "seed": job.config.train.seed,
                    "stamp": job.stamp,
                    "status": failure(job.folder) or run.state,
                    "test": _tested(job),
                    **dict(zip(("iteration", "seconds", "valid"), along, strict=True)),
                }
            )
        return {"metric": config.metric, "mode": config.mode, "seeds": self.seeds, "runs": runs}


def _tested(job: Training) -> float | None:
    outcome = None if failure(job.folder) else recorded(job.config, job.folder)
    if outcome is None:
        return None
    return (job.best() or outcome.last.get("test", {})).get(job.config.metric)


def tasks_of(space: Space) -> list[str]:
    """Return the selected data sets, in the paper's order."""
    return space.among(TASKS, smoke=SMOKE_TASKS)


def installed(methods: Iterable[str]) -> list[str]:
    """Return the methods whose package is installed."""
    return [name for name in methods if find(optimizer_of(name)).installed]


def missing_notes(methods: Iterable[str]) -> list[str]:
    """Return a note on each method whose package is not installed."""
    return [
        f"{METHODS[m]} is missing; install it with `pip install {find(m).package}`."
        for m in methods
        if not installed([m])
    ]


def methods_of(space: Space) -> list[str]:
    """Return the installed methods of the main comparison."""
    return installed(RIVALS if space.scale == "cpu" else OPTIMIZERS)


def tuned_arms(space: Space, task: str, methods: Iterable[str] = OPTIMIZERS) -> list[Arm]:
    """Return an arm per method at its chosen rate; SNOpt with its defaults is not tuned."""
    arms = []
    for method in methods:
        config, jobs = (
            (configuration(task, "snopt", space.scale), ())
            if method == "snopt"
            else tuned(space, task, optimizer_of(method))
        )
        arm = Arm(space, method, config, ROWS.get(method, method), METHODS[method], jobs)
        arm = with_fewer(arm, FEWER.get(method, 1))
        decay = DECAYS.get(method) if space.scale == "cpu" else None
        arms.append(arm if decay is None else _with_better_decay(arm, decay))
    return arms


def _with_better_decay(arm: Arm, decay: float) -> Arm:
    """Return the arm with the better one of two weight decays; its own until both have run."""
    settings = replace(arm.config.optimizer, weight_decay=decay)
    config = replace(arm.config, optimizer=settings)
    other = replace(arm, name=f"{arm.name}-decay{decay:g}", config=config)
    ours, theirs = arm.best_valid, other.best_valid
    if ours is not None and theirs is not None and theirs.count == arm.seeds:
        sign = 1 if config.mode == "max" else -1
        if sign * theirs.mean > sign * ours.mean:
            return replace(other, other=arm)
    return replace(arm, other=other)


def with_fewer(arm: Arm, fewer: int) -> Arm:
    """Return an arm that makes this many times fewer updates at scale ``cpu``."""
    if fewer == 1 or arm.space.scale != "cpu":
        return arm
    length = max((arm.config.train.iterations or 1) // fewer, 1)
    config = shortened(arm.config, Cut(length, POINTS))
    if config.optimizer.cosine is not None:
        config = replace(config, optimizer=replace(config.optimizer, cosine=length))
    return replace(arm, name=f"{arm.name}-{length}", config=config)


def main_arms(space: Space, task: str) -> list[Arm]:
    """Return the arms of the main comparison, with the costs of their updates and evaluations."""
    costs = _costs_of(space, task)
    return [replace(arm, costs=costs) for arm in tuned_arms(space, task, methods_of(space))]


def _costs_of(space: Space, task: str) -> Measurement:
    return rate_job(space, task, list(dict.fromkeys(map(optimizer_of, methods_of(space)))))


def clock_notes(space: Space) -> list[str]:
    """Return a note on the data sets whose costs were not measured, if there are any."""
    tasks = ", ".join(TASKS[t] for t in tasks_of(space) if not _costs_of(space, t).done())
    said = f"Seconds as recorded, which other work on the machine changes: {tasks}."
    return [said] if tasks else []


def trainings(arms: Sequence[Arm]) -> list[Training]:
    """Return the runs of arms, interleaved so that drifts of the machine affect all arms alike."""
    configs = [replace(a.config, train=replace(a.config.train, seed=0)) for a in arms]
    made = []
    for place, config in seeded(configs, max(arm.seeds for arm in arms)):
        arm, seed = arms[place], config.train.seed
        if seed < arm.seeds:
            folder = arm.space.run(config.task, arm.name, seed)
            made.append(Training(config, folder, ready=not arm.tuning))
    return made


def arm_jobs(arms: Sequence[Arm]) -> list[Job]:
    """Return the tuning and the runs of arms, and the measurements of their costs."""
    every = [each for arm in arms for each in (arm, arm.other) if each is not None]
    costs = {arm.costs.folder: arm.costs for arm in arms if arm.costs is not None}
    return [*(job for arm in arms for job in arm.tuning), *trainings(every), *costs.values()]


# -------------------------------------------------------------------------------------- tables

Column: TypeAlias = Callable[[Arm], Cell]
Columns: TypeAlias = Sequence[str | tuple[str, Column]]
"""Names of ``COLUMNS``, and further columns with their names."""


def _tested_text(arm: Arm) -> str:
    return metric_text(arm.finals, arm.config.metric, arm.seeds)


COLUMNS: dict[str, Column] = {
    "data set": lambda arm: TASKS[arm.config.task],
    "method": lambda arm: arm.title,
    "rate": lambda arm: f"{arm.config.optimizer.lr:g}",
    "schedule": lambda arm: "constant" if arm.config.optimizer.cosine is None else "cosine",
    "weight decay": lambda arm: f"{arm.config.optimizer.weight_decay:g}",
    "iterations": lambda arm: arm.config.train.iterations,
    "test": _tested_text,
    "test accuracy, %": _tested_text,
    "seconds per iteration": lambda arm: mean_of(map(seconds_per_iteration, arm.runs)),
    "CPU seconds": lambda arm: mean_of(arm.cpu_seconds),
}
"""Columns of several tables."""


def beside(label: str) -> tuple[str, Column]:
    """Return a column with the values of one of the paper's tables."""
    paper = published(label)
    return f"paper, Table {paper.number}", lambda arm: paper.text(arm.row, arm.config.task)


def arm_table(caption: str, arms: Iterable[Arm], columns: Columns) -> Table:
    """Build a table with one row per arm."""
    named = [(each, COLUMNS[each]) if isinstance(each, str) else each for each in columns]
    rows = [[make(arm) for _, make in named] for arm in arms]
    return Table(caption, [name for name, _ in named], rows)


def _missing_arms(by_task: Mapping[str, Sequence[Arm]]) -> list[str]:
    """Return a note on the methods that were not run, if there are any."""
    missing: dict[str, list[str]] = {}
    for task, arms in by_task.items():
        for arm in arms:
            if not arm.jobs:
                missing.setdefault(arm.title, []).append(TASKS[task])
    listed = "; ".join(f"{title} on {', '.join(tasks)}" for title, tasks in missing.items())
    return [f"Not run: {listed}."] if listed else []


def arm_item(
    id: str,
    labels: tuple[str, ...],
    title: str,
    tasks: Callable[[Space], list[str]],
    arms_of: Callable[[Space, str], list[Arm]],
    about: str,
    columns: Columns | Callable[[list[Arm]], Columns],
    *,
    notes: Callable[[Space], Sequence[str]] = lambda space: (),
    fewer: int = 1,
    panel: Callable[[Arm], str] = lambda arm: TASKS[arm.config.task],
    of_arm: Callable[[Arm], Any] | None = None,
    draw: Draw | None = None,
    caption: str = "",
) -> Item:
    """Create an item that trains several arms on several data sets.

    Args:
        id: name on the command line.
        labels: its labels in the paper's source.
        title: what it shows.
        tasks: the data sets.
        arms_of: the arms of a data set.
        about: caption of the table.
        columns: of the table, or a function that makes them from the arms of a data set.
        notes: notes beside those on the scale.
        fewer: how many times fewer updates its arms make at scale ``cpu``, for the notes.
        panel: the panel of the figure that an arm belongs to, by default that of its data set.
        of_arm: the figure's numbers of one arm, collected by panel and title.
        draw: draws them.
        caption: how to read the figure.
    """

    def jobs(space: Space) -> list[Job]:
        by_cost = sorted(tasks(space), key=list(CUTS).index)
        return [job for task in by_cost for job in arm_jobs(arms_of(space, task))]

    def table(arms: list[Arm]) -> Table:
        return arm_table(about, arms, columns(arms) if callable(columns) else columns)

    def result(space: Space) -> Result:
        every = {task: arms_of(space, task) for task in tasks(space)}
        by_task = {task: arms for task, arms in every.items() if any(arm.jobs for arm in arms)}
        ran = {task: [arm for arm in arms if arm.jobs] for task, arms in by_task.items()}
        rows = [row for arms in ran.values() for row in table(arms).rows]
        begun = [arm for arms in ran.values() for arm in arms]
        curves: dict[str, Any] = {}
        if of_arm is not None:
            for arm in begun:
                curves.setdefault(panel(arm), {})[arm.title] = of_arm(arm)
        usual = SEEDS[space.scale]
        few = [f"{n} seeds instead of {usual}." for n in {arm.seeds for arm in begun} - {usual}]
        cuts = cut_notes(by_task, space.scale, fewer)
        said = [*notes(space), *few, *_missing_arms(by_task), *cuts]
        return Result([replace(table([]), rows=rows)], said, curves)

    return Item(id, labels, title, jobs, result, draw, caption=caption, partial=True)
