"""Tables that change one part of the experiments: solver, batch size, model, adjoint, curvature.

The learning rates are those chosen for the unchanged experiment, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.arms import (
    OPTIMIZERS,
    Arm,
    TasksOf,
    arm_item,
    beside,
    tasks_of,
    tuned_arms,
    with_fewer,
)
from snopt.lab.paper.item import Item, Space

IMAGES = ("mnist", "svhn", "cifar10")


@dataclass(frozen=True)
class Variant:
    """One change of an experiment.

    Attributes:
        suffix: suffix of the arms' names.
        change: changes the experiment.
        optimizers: the methods to change.
        words: suffix of the methods' names in tables.
        row: the paper's name of the row, made from that of the method.
    """

    suffix: str = ""
    change: Callable[[Experiment], Experiment] = lambda config: config
    optimizers: tuple[OptimizerName, ...] = OPTIMIZERS
    words: str = ""
    row: str = "{}"


def _item(
    id: str,
    title: str,
    tasks: TasksOf,
    variants: Sequence[Variant],
    *,
    note: str = "",
    fewer: int = 1,
    few: bool = False,
    seconds: bool = False,
    labels: tuple[str, ...] | None = None,
) -> Item:
    """Create an item with test performance beside the paper's, and seconds if wanted."""
    if labels is None:
        labels = (f"table:{id}-accu", f"table:{id}-runtime") if seconds else (f"table:{id}",)
    measured = {"Accuracy in % or negative log-likelihood.": "test"}
    if seconds:
        measured["Median seconds per iteration, mean over seeds."] = "seconds per iteration"
    papers = [beside(label) for label in labels] or [{} for _ in measured]
    tables = {
        caption: {"data set": None, "method": None, name: None, **paper}
        for (caption, name), paper in zip(measured.items(), papers, strict=True)
    }

    def arms(space: Space, task: str) -> list[Arm]:
        made = [
            replace(
                arm,
                name=arm.name + variant.suffix,
                config=variant.change(arm.config),
                row=variant.row.format(arm.row) if arm.row else "",
                title=arm.title + variant.words,
                few=few,
            )
            for variant in variants
            for arm in tuned_arms(space, task, variant.optimizers)
        ]
        return [with_fewer(arm, fewer) for arm in made]

    notes = [note] if note else []
    return arm_item(id, labels, title, tasks, arms, tables, notes=lambda space: notes, fewer=fewer)


def image_tasks(space: Space) -> list[str]:
    """Return the image data sets: MNIST, unless others are selected."""
    return space.among(IMAGES, few=("mnist",))


# ------------------------------------------------------------------------------ implicit Adams

STEP_SIZE: dict[Scale, float] = {"smoke": 0.2, "cpu": 0.05, "full": 0.05}
"""0.05 is that of the authors' programs; the paper names none. Without a step size, torchdiffeq's
implicit Adams takes a single step of its starting method, RK4, over a whole solve."""


def _implicit_adams(config: Experiment) -> Experiment:
    solver, step = config.solver, STEP_SIZE[config.scale]
    solver = replace(solver, method="implicit_adams", step_size=step, compile=False)
    return replace(config, solver=solver)


def _implicit_adams_tasks(space: Space) -> list[str]:
    # At scale cpu without the series, whose solves take seconds.
    few = ("mnist", "cifar10", "circle", "miniboone")
    return [t for t in tasks_of(space) if space.scale != "cpu" or space.tasks or t in few]


IADAMS = Variant("-iadams", _implicit_adams)
IMPLICIT_ADAMS = _item(
    "iadams",
    "The solver implicit Adams",
    _implicit_adams_tasks,
    [IADAMS],
    note=f"Steps of {STEP_SIZE['full']:g}; at scale smoke of {STEP_SIZE['smoke']:g}.",
    fewer=10,
    few=True,
)

# ---------------------------------------------------------------------------------- batch size


def _larger(config: Experiment) -> Experiment:
    # As many epochs, in batches four times as large.
    train = config.train
    shorter = {
        name: max(value // 4, 1)
        for name in ("iterations", "evaluate_every")
        if (value := getattr(train, name)) is not None
    }
    cosine = None if config.optimizer.cosine is None else shorter["iterations"]
    return replace(
        config,
        optimizer=replace(config.optimizer, cosine=cosine),
        train=replace(train, batch_size=4 * train.batch_size, **shorter),
    )


BATCH = _item(
    "batch",
    "Batches of 512 images",
    image_tasks,
    [Variant("-batch", _larger)],
    note="Batches of 512, four times the usual, and a quarter of the updates: the same epochs.",
    few=True,
)

# ------------------------------------------------------------- residual network, MALI, curvature

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
        Variant(optimizers=("adam", "snopt")),
    ],
)
MALI = _item(
    "mali",
    "First-order methods with MALI",
    lambda space: space.among(("svhn", "cifar10"), few=("cifar10",)),
    [
        Variant(),
        Variant(
            "-mali",
            lambda c: replace(c, solver=replace(c.solver, adjoint="reversible", method=None)),
            ("adam", "sgd"),
            " + MALI",
            "{}_mali",
        ),
    ],
    note="MALI is `adjoint=reversible`: the asynchronous leapfrog and its exact inverse, of second "
    "order, so it takes more steps at the same tolerance.",
    fewer=4,
    few=True,
    seconds=True,
)


def _with_terminal(terminal: str) -> Variant:
    def change(config: Experiment) -> Experiment:
        options = (*config.optimizer.options, ("terminal", terminal), ("loss", "cross_entropy"))
        return replace(config, optimizer=replace(config.optimizer, options=options))

    return Variant(f"-{terminal}", change, ("snopt_amortized", "snopt"), f", {terminal}")


TERMINAL = _item(
    "terminal",
    "The curvature of the loss at the end of a solve",
    lambda space: space.among(
        ("mnist",) if space.scale == "smoke" else ("mnist", "spoken_arabic_digits")
    ),
    [
        Variant(optimizers=("snopt_amortized", "snopt"), words=", gradient"),
        *map(_with_terminal, ("ggn", "sampled")),
    ],
    note="`gradient` is the paper's Φ_x Φ_xᵀ: with the labels of the data the empirical Fisher "
    "matrix, neither the Fisher nor the Gauss-Newton matrix. `ggn` has the exact Gauss-Newton "
    "factors of the cross-entropy (a backward pass per class at a refresh), `sampled` the gradient "
    "for labels drawn from the model (one more pass), with the same expectation.",
    fewer=4,
    few=True,
    seconds=True,
    labels=(),
)
