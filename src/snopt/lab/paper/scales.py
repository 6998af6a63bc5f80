"""The paper's experiments at three sizes.

``full`` is the recipe itself, ``smoke`` three updates of it. ``cpu`` is what two cores can do in
hours: the recipe's solver with fewer iterations, narrower models and smaller batches (``CUTS``).
Whether validation curves are flat at its end is measured
(:func:`snopt.lab.paper.curves.last_gain`). Its learning rates are chosen anew, constant or with a
cosine schedule, so the published schedules do not apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.names import TASKS
from snopt.lab.recipes.catalogue import Cut, recipe, shortened

SEEDS: dict[Scale, int] = {"smoke": 1, "cpu": 3, "full": 3}
"""Number of seeds, from 0."""
FEW_SEEDS = 2
"""Number of seeds at scale ``cpu`` of items beside the main comparison."""
TUNING_SEED = 10
"""Seed of the search for learning rates, which no table reports."""
REST_LR = 3e-3
"""Rate at scale ``cpu`` of Adam, which trains cell and read-out of series models beside the paper's
SGD and Algorithm 2; the other methods train all parameters."""


POINTS = 20
"""Evaluations along a run."""


@dataclass(frozen=True)
class TimedCut(Cut):
    """A task at scale ``cpu``.

    Attributes:
        seconds: CPU seconds of an update of Adam, about, at the start.
        search: updates of the first round of a search for learning rates at least; twice as many
            in the second.
    """

    evaluations: int = POINTS
    seconds: float = 0.1
    search: int = 30


CUTS: dict[str, TimedCut] = {
    # The loss of slow methods stays on a plateau for a hundred updates.
    "svhn": TimedCut(300, width=16, search=100),
    "mnist": TimedCut(1000, width=16, seconds=0.07),
    "spoken_arabic_digits": TimedCut(600, seconds=0.12),
    "cifar10": TimedCut(600, width=16),
    # 0.05 at the start; with large steps its flow takes up to ten times as long. Its loss stays on
    # a plateau for about 150 updates, where every learning rate looks the same.
    "circle": TimedCut(800, search=200),
    "articulary_word_recognition": TimedCut(300, batch_size=64, seconds=0.4),
    "gas": TimedCut(300, width=64, stacks=2, batch_size=500, seconds=0.16),
    "character_trajectories": TimedCut(500, batch_size=128, seconds=0.4),
    # 0.06 at the start; flows of a lower loss take several times as long.
    "miniboone": TimedCut(300, width=256, seconds=0.15),
}
"""From cheap to dear: the order of the queue."""
GROWTH = 1.5
"""Flows need more evaluations as training goes on: mean seconds of an update over the first's."""
PATIENCE = 4.0
"""A run ends after this many times the expected time of Adam: its flow has become too stiff."""
SHORTEST = 60.0
"""CPU seconds that every run may take."""
VALID_EXAMPLES = 1000


@cache
def configuration(
    task: str, optimizer: OptimizerName, scale: Scale, iterations: int | None = None
) -> Experiment:
    """Return a task as an item of the paper runs it.

    ``iterations`` replaces the task's own number of updates at scale ``cpu``.

    Example:
        >>> configuration("mnist", "adam", "cpu").model.width
        16
    """
    if scale != "cpu":
        return recipe(task, optimizer, scale)
    cut = replace(CUTS[task], iterations=iterations or CUTS[task].iterations)
    config = shortened(replace(recipe(task, optimizer, "full"), scale="cpu"), cut)
    rest = None if config.optimizer.rest_lr is None else REST_LR
    limit = max(PATIENCE * GROWTH * cut.seconds * cut.iterations, SHORTEST)
    return replace(
        config,
        data=replace(config.data, valid_examples=VALID_EXAMPLES),
        solver=replace(config.solver, compile=config.model.kind == "series"),
        optimizer=replace(config.optimizer, rest_lr=rest, milestones=(), gamma=1.0),
        train=replace(config.train, max_cpu_seconds=limit),
    )


PARTS: dict[str, str] = {
    "cifar10": "CIFAR10: one of five training batches, the whole test batch",
    "miniboone": "Miniboone: fitted on the published validation split (3,284 rows), tested on the "
    "whole test split",
    "gas": "Gas: another set of gas sensors stands in for it, so the values cannot be compared",
    "svhn": "SVHN: 554 training and 486 test digits",
}
"""The part of a data set at scale ``cpu``, if it is not the whole one."""


def cut_notes(tasks: Iterable[str], scale: Scale, fewer: int = 1) -> list[str]:
    """Return a note on the number of updates, unless it is that of the paper.

    ``fewer`` divides it at scale ``cpu``.
    """
    if scale == "full":
        return []
    fewer = fewer if scale == "cpu" else 1
    lengths = {task: configuration(task, "adam", scale).train.iterations or 1 for task in tasks}
    said = ", ".join(f"{TASKS[task]} {length // fewer}" for task, length in lengths.items())
    return [f"Updates: {said}."] if said else []
