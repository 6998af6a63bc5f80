"""Tables that change one thing of the experiments: solver, batch size, model or adjoint.

Rates are those chosen for the unchanged experiment, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.arms import (
    OPTIMIZERS,
    Arm,
    arm_jobs,
    arm_table,
    arms_of_all,
    beside,
    tasks_of,
    tuned_arms,
)
from snopt.lab.paper.item import Item, Job, Result, Space, Table
from snopt.lab.paper.scales import cut_notes

__all__ = ["BATCH", "IADAMS", "IMPLICIT_ADAMS", "MALI", "RESIDUAL", "image_tasks"]

IMAGES = ("mnist", "svhn", "cifar10")


@dataclass(frozen=True)
class Variant:
    """One change of an experiment.

    Attributes:
        suffix: what it adds to an arm's name.
        change: makes it.
        optimizers: to whom.
        words: what it adds to a method's name in a table.
        row: the paper's name for the row, made from the method's.
    """

    suffix: str
    change: Callable[[Experiment], Experiment]
    optimizers: tuple[OptimizerName, ...] = OPTIMIZERS
    words: str = ""
    row: str = "{}"


def arms_of(variants: Sequence[Variant], space: Space, task: str) -> tuple[list[Arm], list[Job]]:
    """Return the arms of some variants, and the tuning still to do."""
    arms, waiting = [], []
    for variant in variants:
        made, jobs = tuned_arms(space, task, variant.optimizers)
        waiting += jobs
        for arm in made:
            row = variant.row.format(arm.row) if arm.row else ""
            config = variant.change(arm.config)
            arms.append(Arm(arm.name + variant.suffix, config, row, variant.words))
    return arms, waiting


def _item(
    id: str,
    title: str,
    tasks: Callable[[Space], list[str]],
    variants: Sequence[Variant],
    *,
    note: str = "",
    seconds: bool = False,
) -> Item:
    """Make an item that puts test performance beside the paper's, and seconds if wanted."""
    labels = (f"table:{id}-accu", f"table:{id}-runtime") if seconds else (f"table:{id}",)
    made = partial(arms_of, variants)

    def result(space: Space) -> Result:
        arms = arms_of_all(space, tasks(space), made)
        tables: list[Table] = []
        for label, caption, measured in zip(labels, CAPTIONS, MEASURED, strict=False):
            columns = {"data set": None, "method": None, measured: None, **beside(label)}
            tables.append(arm_table(caption, space, arms, columns))
        return Result(tables, [*([note] if note else []), *cut_notes(tasks(space), space.scale)])

    return Item(id, labels, title, lambda space: arm_jobs(space, tasks(space), made), result)


CAPTIONS = (
    "Accuracy in % or negative log-likelihood.",
    "Median seconds of an iteration, mean over seeds.",
)
MEASURED = ("test", "seconds an iteration")

# ------------------------------------------------------------------------------ implicit Adams

STEP_SIZE: dict[Scale, float] = {"smoke": 0.2, "cpu": 0.05, "full": 0.05}
"""0.05 is that of the authors' programs; the paper names none. torchdiffeq's implicit Adams has no
other way to know its steps: without one it takes a single step of its starting method, RK4, over a
solve."""


def _implicit_adams(config: Experiment) -> Experiment:
    solver, step = config.solver, STEP_SIZE[config.scale]
    solver = replace(solver, method="implicit_adams", step_size=step, compile=False)
    return replace(config, solver=solver)


IADAMS = Variant("-iadams", _implicit_adams)
IMPLICIT_ADAMS = _item(
    "iadams",
    "The solver implicit Adams",
    tasks_of,
    [IADAMS],
    note=f"Steps of {STEP_SIZE['full']:g}; at scale smoke of {STEP_SIZE['smoke']:g}.",
)

# ---------------------------------------------------------------------------------- batch size


def _larger(config: Experiment) -> Experiment:
    # As many passes over the data as in the unchanged experiment would be 4 times shorter; the
    # cut runs are so short that the number of updates is kept within reason instead.
    train = config.train
    shorter = {
        name: value and max(value // 3, 1)
        for name in ("iterations", "evaluate_every")
        if (value := getattr(train, name)) is not None
    }
    return replace(config, train=replace(train, batch_size=4 * train.batch_size, **shorter))


def image_tasks(space: Space) -> list[str]:
    """Return the image data sets to look at: MNIST, unless others are asked for."""
    return space.among(IMAGES if space.scale == "full" or space.tasks else ("mnist",))


BATCH = _item(
    "batch",
    "Batches of 512 images",
    image_tasks,
    [Variant("-batch", _larger)],
    note="Batches of 512, four times the usual; at scales cpu and smoke a third of the updates.",
)

# ---------------------------------------------------------------------------- residual network


def _unchanged(config: Experiment) -> Experiment:
    return config


RESIDUAL = _item(
    "resnet",
    "Residual networks",
    lambda space: [task for task in IMAGES if task in tasks_of(space)],
    [
        Variant(
            "-resnet",
            lambda c: replace(c, model=replace(c.model, kind="residual")),
            ("adam",),
            ", residual network",
            "resnet_{}",
        ),
        Variant("", _unchanged, ("adam", "snopt")),
    ],
)

# ---------------------------------------------------------------------------------------- MALI


def _mali_tasks(space: Space) -> list[str]:
    whole = space.scale == "full" or space.tasks
    return space.among(("svhn", "cifar10") if whole else ("cifar10",))


MALI = _item(
    "mali",
    "First-order methods with MALI",
    _mali_tasks,
    [
        Variant("", _unchanged),
        Variant(
            "-mali",
            lambda c: replace(c, solver=replace(c.solver, adjoint="reversible", method=None)),
            ("adam", "sgd"),
            " + MALI",
            "{}_mali",
        ),
    ],
    note="MALI is `adjoint=reversible`: the asynchronous leapfrog and its exact inverse, of second "
    "order, so that it takes more steps at the same tolerance.",
    seconds=True,
)
