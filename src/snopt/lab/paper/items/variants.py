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
    TasksOf,
    arm_item,
    beside,
    tasks_of,
    tuned_arms,
)
from snopt.lab.paper.item import Item, Space

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


def arms_of(variants: Sequence[Variant], space: Space, task: str) -> list[Arm]:
    """Return the arms of some variants."""
    return [
        replace(
            arm,
            name=arm.name + variant.suffix,
            config=variant.change(arm.config),
            row=variant.row.format(arm.row) if arm.row else "",
            title=arm.title + variant.words,
        )
        for variant in variants
        for arm in tuned_arms(space, task, variant.optimizers)
    ]


def _item(
    id: str,
    title: str,
    tasks: TasksOf,
    variants: Sequence[Variant],
    *,
    note: str = "",
    seconds: bool = False,
) -> Item:
    """Make an item that puts test performance beside the paper's, and seconds if wanted."""
    labels = (f"table:{id}-accu", f"table:{id}-runtime") if seconds else (f"table:{id}",)
    tables = {
        caption: {"data set": None, "method": None, measured: None, **beside(label)}
        for label, (caption, measured) in zip(labels, TABLES.items(), strict=False)
    }
    notes = [note] if note else []
    arms = partial(arms_of, variants)
    return arm_item(id, labels, title, tasks, arms, tables, notes=lambda space: notes)


TABLES = {
    "Accuracy in % or negative log-likelihood.": "test",
    "Median seconds of an iteration, mean over seeds.": "seconds an iteration",
}
"""Captions, with what is measured."""

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
    # As many passes over the data, in batches four times as large.
    train = config.train
    shorter = {
        name: max(value // 4, 1)
        for name in ("iterations", "evaluate_every")
        if (value := getattr(train, name)) is not None
    }
    optimizer = config.optimizer
    cosine = None if optimizer.cosine is None else shorter["iterations"]
    return replace(
        config,
        optimizer=replace(optimizer, cosine=cosine),
        train=replace(train, batch_size=4 * train.batch_size, **shorter),
    )


def image_tasks(space: Space) -> list[str]:
    """Return the image data sets to look at: MNIST, unless others are asked for."""
    return space.among(IMAGES if space.scale == "full" or space.tasks else ("mnist",))


BATCH = _item(
    "batch",
    "Batches of 512 images",
    image_tasks,
    [Variant("-batch", _larger)],
    note="Batches of 512, four times the usual, and a quarter of the updates: the same epochs.",
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
