"""The same number of learning rates for every method, and the one that validation chooses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.optimizers import find, grid
from snopt.lab.paper.item import Job, Space
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.scales import CUTS, TUNING_SEED, configuration
from snopt.lab.recipes.run import evaluations

__all__ = ["FEWER", "final", "tuned", "tuning_jobs"]

SERIES = ("spoken_arabic_digits", "articulary_word_recognition", "character_trajectories")

FEWER: dict[str, int] = {"recursive": 5}
"""At scale ``cpu`` these make so many times fewer updates, in tuning too: their steps are long."""

PATIENCE: dict[Scale, float] = {"cpu": 240.0}
"""Seconds of training after which a rate is given up: its flow has become too stiff."""


def points(task: str, optimizer: OptimizerName, scale: Scale) -> list[dict[str, float]]:
    """List the settings that are tried: four rates, or at scale ``full`` the paper's whole grid.

    Example:
        >>> [len(points("mnist", "adam", scale)) for scale in ("full", "cpu", "smoke")]
        [33, 4, 2]
    """
    if scale == "full":
        return grid(optimizer)
    # On series all have Adam's rates: at 0.1 the field of an ODE-RNN is soon too stiff to solve.
    rates = find("adam" if task in SERIES else optimizer).few_rates
    return [{"lr": lr} for lr in (rates if scale == "cpu" else rates[:2])]


def tuning_jobs(space: Space, task: str, optimizer: OptimizerName) -> list[Training]:
    """List the runs that choose an optimizer's settings for a task."""
    cut = CUTS[task].tuning // FEWER.get(optimizer, 1) if space.scale == "cpu" else None
    config = configuration(task, optimizer, space.scale, cut)
    # Only the end is asked for; at scale full, where epochs tell the length, every epoch's.
    every = config.train.iterations
    config = replace(
        config,
        data=replace(config.data, test_examples=0, hold_out=True),
        train=replace(
            config.train,
            seed=TUNING_SEED,
            evaluate_every=every,
            max_seconds=PATIENCE.get(space.scale),
        ),
    )
    made = []
    for point in points(task, optimizer, space.scale):
        name = "-".join([f"tune-{optimizer}", *(f"{key}{value:g}" for key, value in point.items())])
        settings = replace(config.optimizer, **cast("dict[str, Any]", point))
        each = replace(config, optimizer=settings)
        made.append(Training(each, space.run(task, name, TUNING_SEED)))
    return made


def tuned(space: Space, task: str, optimizer: OptimizerName) -> tuple[Experiment | None, list[Job]]:
    """Return a task with an optimizer at its chosen settings.

    At scale ``cpu`` the runs of :func:`tuning_jobs` choose, by the validation metric at their end.
    At the other scales the recipe's settings stand, which for the paper's methods are published.

    Returns:
        The experiment, None while the choice is not made; and what is to be done before it can be.
    """
    config = configuration(task, optimizer, space.scale)
    if space.scale != "cpu":
        return config, []
    jobs = tuning_jobs(space, task, optimizer)
    waiting: list[Job] = [job for job in jobs if not job.done()]
    if waiting:
        return None, waiting
    best = max(jobs, key=_goodness)
    return replace(config, optimizer=best.config.optimizer), []


def final(job: Training, metric: str = "") -> float:
    """Return the validation metric at the end of a run; NaN if it did not get there."""
    total = job.config.train.iterations
    known = evaluations(job.folder, metric or job.config.metric)
    at_end = [value for iteration, _, value in known if total in (None, iteration)]
    return at_end[-1] if at_end else math.nan


def _goodness(job: Training) -> tuple[float, float]:
    """Order runs by their validation metric, and those that are equal by their validation loss."""
    value, loss = final(job), final(job, "loss")
    if math.isnan(value):
        return -math.inf, -math.inf
    return (value if job.config.mode == "max" else -value), -loss
