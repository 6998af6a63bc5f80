"""Tables that change one thing of the experiments: solver, batch size, model or adjoint.

Rates are those chosen for the unchanged experiment, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from snopt.lab.config import Experiment, OptimizerName
from snopt.lab.paper.arms import Arm, finals_text, runs_of, trainings
from snopt.lab.paper.item import Cell, Item, Job, Result, Space, Table
from snopt.lab.paper.items.accuracy import OPTIMIZERS, tasks_of, tuned_arms
from snopt.lab.paper.names import METHODS, TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import cut_note
from snopt.lab.report.summary import seconds_per_iteration

__all__ = ["BATCH", "IMPLICIT_ADAMS", "MALI", "RESIDUAL", "image_tasks"]

IMAGES = ("mnist", "svhn", "cifar10")


@dataclass(frozen=True)
class Variant:
    """One change of an experiment.

    Attributes:
        suffix: what it adds to an arm's name.
        words: what it adds to a method's name in a table.
        change: makes it.
        optimizers: to whom.
    """

    suffix: str
    words: str
    change: Callable[[Experiment], Experiment]
    optimizers: tuple[OptimizerName, ...]


PLAIN = Variant("", "", lambda config: config, OPTIMIZERS)


def arms_of(
    space: Space, task: str, variants: Sequence[Variant]
) -> tuple[list[tuple[Arm, str]], list[Job]]:
    """Return the arms of some variants with their names for a table, and the tuning still to do."""
    arms, waiting = [], []
    for variant in variants:
        made, jobs = tuned_arms(space, task, variant.optimizers)
        waiting += jobs
        for arm in made:
            changed = Arm(arm.name + variant.suffix, variant.change(arm.config))
            arms.append((changed, METHODS[arm.name] + variant.words))
    return arms, waiting


def jobs_of(space: Space, tasks: Sequence[str], variants: Sequence[Variant]) -> list[Job]:
    """List tuning and runs of some variants on some data sets."""
    made: list[Job] = []
    for task in tasks:
        arms, waiting = arms_of(space, task, variants)
        made += waiting or trainings(space, [arm for arm, _ in arms])
    return made


def accuracy_table(
    space: Space, tasks: Sequence[str], variants: Sequence[Variant], label: str
) -> Table:
    """Put test performance beside the paper's table of that label."""
    paper = published(label)
    rows: list[list[Cell]] = []
    for task in tasks:
        for arm, words in arms_of(space, task, variants)[0]:
            rows.append(
                [
                    TASKS[task],
                    words,
                    finals_text(space, arm),
                    paper.text(_row(arm.name), task),
                ]
            )
    columns = ["data set", "method", "test", f"paper, Table {paper.number}"]
    return Table("Accuracy in % or negative log-likelihood.", columns, rows)


def _row(arm: str) -> str:
    """Return the name of an arm's row in the paper, whose SNOpt is Algorithm 2."""
    name = arm.replace("snopt_amortized", "paper").replace("snopt", "-").replace("paper", "snopt")
    for suffix in ("-iadams", "-batch"):
        name = name.removesuffix(suffix)
    return name.replace("-mali", "_mali").replace("adam-resnet", "resnet_adam")


def notes_of(space: Space, tasks: Sequence[str]) -> list[str]:
    """Say what was cut."""
    return [note for task in tasks if (note := cut_note(task, space.scale))]


# ------------------------------------------------------------------------------ implicit Adams

STEP_SIZE = 0.05
"""Of the authors' programs; the paper names none. torchdiffeq's implicit Adams has no other way to
know its steps: without one it takes a single step of its starting method, RK4, over a solve."""


def _implicit_adams(config: Experiment) -> Experiment:
    solver = replace(config.solver, method="implicit_adams", step_size=STEP_SIZE, compile=False)
    return replace(config, solver=solver)


IADAMS = Variant("-iadams", "", _implicit_adams, OPTIMIZERS)


def _iadams_result(space: Space) -> Result:
    tasks = tasks_of(space)
    table = accuracy_table(space, tasks, [IADAMS], "table:iadams")
    return Result([table], [f"Steps of {STEP_SIZE:g}.", *notes_of(space, tasks)])


IMPLICIT_ADAMS = Item(
    "iadams",
    ("table:iadams",),
    "The solver implicit Adams",
    lambda space: jobs_of(space, tasks_of(space), [IADAMS]),
    _iadams_result,
)

# ---------------------------------------------------------------------------------- batch size


def _larger(config: Experiment) -> Experiment:
    # As many passes over the data as in the unchanged experiment would be 4 times shorter; the
    # cut runs are so short that the number of updates is kept within reason instead.
    length = config.train.iterations
    shorter = None if length is None else max(length // 3, 1)
    every = config.train.evaluate_every
    return replace(
        config,
        train=replace(
            config.train,
            batch_size=4 * config.train.batch_size,
            iterations=shorter,
            evaluate_every=None if every is None else max(every // 3, 1),
        ),
    )


LARGE_BATCH = Variant("-batch", "", _larger, OPTIMIZERS)


def image_tasks(space: Space) -> list[str]:
    """Return the image data sets to look at: MNIST, unless others are asked for."""
    return space.among(IMAGES if space.scale == "full" or space.tasks else ("mnist",))


def _batch_result(space: Space) -> Result:
    tasks = image_tasks(space)
    table = accuracy_table(space, tasks, [LARGE_BATCH], "table:batch")
    words = "Batches of 512, four times the usual; at scales cpu and smoke a third of the updates."
    return Result([table], [words, *notes_of(space, tasks)])


BATCH = Item(
    "batch",
    ("table:batch",),
    "Batches of 512 images",
    lambda space: jobs_of(space, image_tasks(space), [LARGE_BATCH]),
    _batch_result,
)

# ---------------------------------------------------------------------------- residual network

RESNET = Variant(
    "-resnet",
    ", residual network",
    lambda c: replace(c, model=replace(c.model, kind="residual")),
    ("adam",),
)
RESNET_BESIDE = (RESNET, Variant("", "", lambda config: config, ("adam", "snopt")))


def _residual_tasks(space: Space) -> list[str]:
    return [task for task in IMAGES if task in tasks_of(space)]


def _residual_result(space: Space) -> Result:
    tasks = _residual_tasks(space)
    table = accuracy_table(space, tasks, RESNET_BESIDE, "table:resnet")
    return Result([table], notes_of(space, tasks))


RESIDUAL = Item(
    "resnet",
    ("table:resnet",),
    "Residual networks",
    lambda space: jobs_of(space, _residual_tasks(space), RESNET_BESIDE),
    _residual_result,
)

# ---------------------------------------------------------------------------------------- MALI

REVERSIBLE = Variant(
    "-mali",
    " + MALI",
    lambda c: replace(c, solver=replace(c.solver, adjoint="reversible", method=None)),
    ("adam", "sgd"),
)
MALI_ARMS = (PLAIN, REVERSIBLE)


def _mali_tasks(space: Space) -> list[str]:
    whole = space.scale == "full" or space.tasks
    return space.among(("svhn", "cifar10") if whole else ("cifar10",))


def _mali_result(space: Space) -> Result:
    tasks = _mali_tasks(space)
    paper = published("table:mali-runtime")
    rows: list[list[Cell]] = []
    for task in tasks:
        for arm, words in arms_of(space, task, MALI_ARMS)[0]:
            seconds = mean_of(seconds_per_iteration(run) for run in runs_of(space, arm))
            rows.append([TASKS[task], words, seconds, paper.text(_row(arm.name), task)])
    columns = ["data set", "method", "seconds an iteration", f"paper, Table {paper.number}"]
    tables = [
        accuracy_table(space, tasks, MALI_ARMS, "table:mali-accu"),
        Table("Median seconds of an iteration, mean over seeds.", columns, rows),
    ]
    note = (
        "MALI is `adjoint=reversible`: the asynchronous leapfrog and its exact inverse, of second "
        "order, so that it takes more steps at the same tolerance."
    )
    return Result(tables, [note, *notes_of(space, tasks)])


MALI = Item(
    "mali",
    ("table:mali-accu", "table:mali-runtime"),
    "First-order methods with MALI",
    lambda space: jobs_of(space, _mali_tasks(space), MALI_ARMS),
    _mali_result,
)
