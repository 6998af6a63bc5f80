"""Equal searches for every method, and the settings that validation chooses.

At scale ``cpu`` by successive halving: five learning rates make a tenth of the updates; the two
best ones, each constant and with a cosine schedule, make a quarter; the best of these four is
chosen. All use a seed that no table reports, and the validation metric at the end decides.
Accuracies within one standard error (of 1,000 examples) of the best are equal; then the number of
evaluations decides, because a rate that makes the field stiff in a short run makes it stiffer in a
long one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.optimizers import find, grid
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.scales import CUTS, TUNING_SEED, VALID_EXAMPLES, configuration
from snopt.lab.report.read import read_run

SERIES = ("spoken_arabic_digits", "articulary_word_recognition", "character_trajectories")
STIFF = 5e-2
"""The highest rate on series; with higher rates the field of an ODE-RNN becomes too stiff."""

FIRST, SECOND = 10, 4
"""Updates of the reported runs over those of the first and of the second round."""
KEPT = 2
"""Rates in the second round."""

FEWER: dict[str, int] = {"recursive": 20, "lbfgs": 5}
"""Methods with long steps make this many times fewer updates at scale ``cpu``, tuning included."""


def points(task: str, optimizer: OptimizerName, scale: Scale) -> list[dict[str, float]]:
    """Return the settings to try: five rates, or at scale ``full`` the paper's whole grid.

    Example:
        >>> [len(points("mnist", "adam", scale)) for scale in ("full", "cpu", "smoke")]
        [33, 5, 2]
        >>> points("character_trajectories", "snopt_amortized", "cpu")[-1]
        {'lr': 0.05}
    """
    if scale == "full":
        return grid(optimizer)
    rates = find(optimizer).few_rates
    if task in SERIES and max(rates) > STIFF:
        rates = (1e-3, 3e-3, 1e-2, 3e-2, STIFF)
    return [{"lr": lr} for lr in (rates if scale == "cpu" else rates[:2])]


def tuning_jobs(space: Space, task: str, optimizer: OptimizerName) -> list[Training]:
    """Return the runs that choose an optimizer's settings.

    Those of the second round are guesses, and not ready, until the first round is done.
    """
    first = points(task, optimizer, space.scale)
    if space.scale != "cpu":
        return [_job(space, task, optimizer, point) for point in first]
    fewer = FEWER.get(optimizer, 1)
    length = CUTS[task].iterations // fewer
    least = max(CUTS[task].search // fewer, 1)
    short = max(length // SECOND, 2 * least)
    opened = [_job(space, task, optimizer, point, max(length // FIRST, least)) for point in first]
    ready = all(job.done() for job in opened)
    best = sorted(opened, key=_goodness, reverse=True) if ready else opened
    scheduled: list[dict[str, float]] = [
        {"lr": job.config.optimizer.lr, **schedule}
        for job in best[:KEPT]
        for schedule in ({}, {"cosine": short})
    ]
    finalists = [_job(space, task, optimizer, point, short, ready) for point in scheduled]
    return [*opened, *finalists]


def _job(
    space: Space,
    task: str,
    optimizer: OptimizerName,
    point: dict[str, float],
    iterations: int | None = None,
    ready: bool = True,
) -> Training:
    config = configuration(task, optimizer, space.scale, iterations)
    settings = replace(config.optimizer, **cast("dict[str, Any]", point))
    config = replace(
        config,
        data=replace(config.data, test_examples=0, hold_out=True),
        optimizer=settings,
        train=replace(
            config.train,
            seed=TUNING_SEED,
            # Only the end counts; at scale full, whose length is in epochs, every epoch is kept.
            evaluate_every=config.train.iterations,
        ),
    )
    length = [f"{iterations}"] if iterations else []
    words = [f"tune-{optimizer}", *length, *(f"{key}{value:g}" for key, value in point.items())]
    return Training(config, space.run(task, "-".join(words), TUNING_SEED), ready=ready)


def tuned(
    space: Space, task: str, optimizer: OptimizerName
) -> tuple[Experiment, tuple[Training, ...]]:
    """Return a task with an optimizer at its chosen settings.

    At scale ``cpu`` the runs of :func:`tuning_jobs` decide. The other scales use the settings of
    the recipe, which are published for the paper's methods.

    Returns:
        The experiment, and the jobs to do before its settings are more than a guess.
    """
    config = configuration(task, optimizer, space.scale)
    if space.scale != "cpu":
        return config, ()
    jobs = tuning_jobs(space, task, optimizer)
    waiting = tuple(job for job in jobs if not job.done())
    if waiting:
        return config, waiting
    finalists = jobs[len(points(task, optimizer, space.scale)) :]
    best = _chosen(finalists).config.optimizer
    cosine = None if best.cosine is None else config.train.iterations
    return replace(config, optimizer=replace(best, cosine=cosine)), ()


def _chosen(jobs: Sequence[Training]) -> Training:
    """Return the best run; among accuracies that are equal up to their error, the cheapest one.

    The cheapest one makes the fewest evaluations of the field. Seconds would depend on what else
    the machine did.
    """
    top = max(jobs, key=_goodness)
    best = final(top)
    if top.config.mode != "max" or math.isnan(best):
        return top
    error = math.sqrt(best * (1 - best) / VALID_EXAMPLES)
    return min((job for job in jobs if final(job) >= best - error), key=_evaluations)


def _evaluations(job: Training) -> float:
    steps = read_run(job.folder).records.steps.table("nfe_forward")
    return float(steps[:, 2].mean() * steps[-1, 0])


def final(job: Training, metric: str = "") -> float:
    """Return the validation metric at the end of a run; NaN if it did not get there."""
    return _final(job, metric or job.config.metric) if job.done() else math.nan


@cache
def _final(job: Training, metric: str) -> float:
    total = job.config.train.iterations
    known = read_run(job.folder).records.split("valid").table(metric).tolist()
    at_end = [value for iteration, _, value in known if total in (None, iteration)]
    return at_end[-1] if at_end else math.nan


def _goodness(job: Training) -> tuple[float, float]:
    """Order runs by their validation metric, and equal ones by their validation loss."""
    value, loss = final(job), final(job, "loss")
    if math.isnan(value):
        return -math.inf, -math.inf
    return (value if job.config.mode == "max" else -value), -loss
