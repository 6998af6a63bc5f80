"""Tables that change one part of the experiments: solver, batch size, model, adjoint, curvature.

The learning rates are those chosen for the unchanged experiment, for all methods alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.arms import (
    OPTIMIZERS,
    SMOKE_TASKS,
    Arm,
    arm_item,
    beside,
    tuned_arms,
    with_fewer,
)
from snopt.lab.paper.item import Space
from snopt.lab.paper.items.methods import IMAGES, SNOPT
from snopt.lab.paper.names import TASKS

ABOUT = "Accuracy in % or negative log-likelihood."
TIMED = "Accuracy in %, and median seconds per iteration, mean over seeds."
PERFORMANCE = ("data set", "method", "test")


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


def varied(
    *variants: Variant, fewer: int = 1, few: bool = False
) -> Callable[[Space, str], list[Arm]]:
    """Return a function that makes the arms of variants, with fewer updates and seeds if wanted."""

    def arms(space: Space, task: str) -> list[Arm]:
        changed = [
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
        return [with_fewer(arm, fewer) for arm in changed]

    return arms


# ------------------------------------------------------------------------------ implicit Adams

STEP_SIZE: dict[Scale, float] = {"smoke": 0.2, "cpu": 0.05, "full": 0.05}
"""0.05 is that of the authors' programs; the paper names none. Without a step size, torchdiffeq's
implicit Adams takes a single step of its starting method, RK4, over a whole solve."""


def implicit_adams(config: Experiment) -> Experiment:
    """Return an experiment with the solver implicit Adams."""
    solver, step = config.solver, STEP_SIZE[config.scale]
    solver = replace(solver, method="implicit_adams", step_size=step, compile=False)
    return replace(config, solver=solver)


IMPLICIT_ADAMS = arm_item(
    "iadams",
    ("table:iadams",),
    "The solver implicit Adams",
    # At scale cpu without the series, whose solves take seconds.
    lambda space: space.among(TASKS, ("mnist", "cifar10", "circle", "miniboone"), SMOKE_TASKS),
    varied(Variant("-iadams", implicit_adams), fewer=10, few=True),
    ABOUT,
    (*PERFORMANCE, beside("table:iadams")),
    notes=lambda space: [f"Steps of {STEP_SIZE[space.scale]:g}."],
    fewer=10,
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


BATCH = arm_item(
    "batch",
    ("table:batch",),
    "Batches of 512 images",
    lambda space: space.among(IMAGES, cpu=("mnist",)),
    varied(Variant("-batch", _larger), few=True),
    ABOUT,
    (*PERFORMANCE, beside("table:batch")),
    notes=lambda space: [
        "Batches of 512, four times the usual, and a quarter of the updates: the same epochs."
    ],
)

# ------------------------------------------------------------- residual network, MALI, curvature


def _residual(config: Experiment) -> Experiment:
    return replace(config, model=replace(config.model, kind="residual"))


RESIDUAL = arm_item(
    "resnet",
    ("table:resnet",),
    "Residual networks",
    lambda space: space.among(IMAGES, smoke=("mnist",)),
    varied(
        Variant("-resnet", _residual, ("adam",), ", residual network", "resnet_{}"),
        Variant(optimizers=("adam", "snopt")),
    ),
    ABOUT,
    (*PERFORMANCE, beside("table:resnet")),
)


def _mali(config: Experiment) -> Experiment:
    return replace(config, solver=replace(config.solver, adjoint="reversible", method=None))


MALI = arm_item(
    "mali",
    ("table:mali-accu", "table:mali-runtime"),
    "First-order methods with MALI",
    lambda space: space.among(("svhn", "cifar10"), cpu=("cifar10",)),
    varied(
        Variant(),
        Variant("-mali", _mali, ("adam", "sgd"), " + MALI", "{}_mali"),
        fewer=4,
        few=True,
    ),
    TIMED,
    [
        *(*PERFORMANCE, beside("table:mali-accu")),
        *("seconds per iteration", beside("table:mali-runtime")),
    ],
    notes=lambda space: [
        "MALI is `adjoint=reversible`: the asynchronous leapfrog and its exact inverse, of second "
        "order, so it takes more steps at the same tolerance."
    ],
    fewer=4,
)


def _with_terminal(terminal: str) -> Variant:
    def change(config: Experiment) -> Experiment:
        options = (*config.optimizer.options, ("terminal", terminal), ("loss", "cross_entropy"))
        return replace(config, optimizer=replace(config.optimizer, options=options))

    return Variant(f"-{terminal}", change, SNOPT, f", {terminal}")


TERMINAL = arm_item(
    "terminal",
    (),
    "The curvature of the loss at the end of a solve",
    lambda space: space.among(("mnist", "spoken_arabic_digits"), smoke=("mnist",)),
    varied(
        Variant(optimizers=SNOPT, words=", gradient"),
        *map(_with_terminal, ("ggn", "sampled")),
        fewer=4,
        few=True,
    ),
    TIMED,
    (*PERFORMANCE, "seconds per iteration"),
    notes=lambda space: [
        "`gradient` is the paper's Φ_x Φ_xᵀ: with the labels of the data the empirical Fisher "
        "matrix, neither the Fisher nor the Gauss-Newton matrix. `ggn` has the exact Gauss-Newton "
        "factors of the cross-entropy (a backward pass per class at a refresh), `sampled` the "
        "gradient for labels drawn from the model (one more pass), with the same expectation."
    ],
    fewer=4,
)
