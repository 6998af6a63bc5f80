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
from snopt.lab.recipes import recipe

SEEDS: dict[Scale, int] = {"smoke": 1, "cpu": 3, "full": 3}
"""Number of seeds, from 0."""
FEW_SEEDS = 2
"""Number of seeds at scale ``cpu`` of items beside the main comparison."""
TUNING_SEED = 10
"""Seed of the search for learning rates, which no table reports."""
REST_LR = 3e-3
"""Rate at scale ``cpu`` of Adam, which trains cell and read-out of series models beside the paper's
SGD and Algorithm 2; the other methods train all parameters."""


@dataclass(frozen=True)
class Cut:
    """A task at scale ``cpu``.

    Attributes:
        iterations: updates of a reported run.
        seconds: CPU seconds of an update of Adam at the start of training, about.
        width: channels or hidden units; by default those of the recipe.
        batch_size: examples per update; by default those of the recipe.
        compile: whether to compile whole steps.
    """

    iterations: int
    seconds: float
    width: int | None = None
    batch_size: int | None = None
    compile: bool = False

    def limit(self, iterations: int) -> float:
        """Return the CPU seconds after which a run of so many updates ends."""
        return max(PATIENCE * GROWTH * self.seconds * iterations, SHORTEST)


CUTS: dict[str, Cut] = {
    "svhn": Cut(150, 0.1, width=16),
    "mnist": Cut(1000, 0.07, width=16),
    "spoken_arabic_digits": Cut(600, 0.12, compile=True),
    "cifar10": Cut(600, 0.1, width=16),
    # 0.05 at the start; with large steps its flow takes up to ten times as long.
    "circle": Cut(800, 0.1),
    "articulary_word_recognition": Cut(300, 0.4, batch_size=64, compile=True),
    "gas": Cut(300, 0.16, batch_size=500),
    "character_trajectories": Cut(500, 0.4, batch_size=128, compile=True),
    # 0.06 at the start; flows of a lower loss take several times as long.
    "miniboone": Cut(300, 0.15, width=256),
}
"""From cheap to dear: the order of the queue."""
GROWTH = 1.5
"""Flows need more evaluations as training goes on: mean seconds of an update over the first's."""
PATIENCE = 4.0
"""A run ends after this many times the expected time of Adam: its flow has become too stiff."""
SHORTEST = 60.0
"""CPU seconds that every run may take."""
VALID_EXAMPLES = 1000
POINTS = 20
"""Evaluations along a run."""


@cache
def configuration(
    task: str, optimizer: OptimizerName, scale: Scale, iterations: int | None = None
) -> Experiment:
    """Return a task as an item of the paper runs it.

    Args:
        task: one of the paper's nine data sets.
        optimizer: name of the optimizer.
        scale: the size.
        iterations: updates at scale ``cpu``, in place of the task's own number.

    Example:
        >>> configuration("mnist", "adam", "cpu").model.width
        16
    """
    config = recipe(task, optimizer, scale)
    if scale != "cpu":
        return config
    cut = CUTS[task]
    length = iterations or cut.iterations
    rest = None if config.optimizer.rest_lr is None else REST_LR
    return replace(
        config,
        data=replace(config.data, valid_examples=VALID_EXAMPLES),
        model=replace(config.model, width=cut.width or config.model.width),
        solver=replace(config.solver, compile=cut.compile),
        optimizer=replace(config.optimizer, rest_lr=rest, milestones=(), gamma=1.0),
        train=replace(
            config.train,
            iterations=length,
            epochs=None,
            batch_size=cut.batch_size or config.train.batch_size,
            evaluate_every=max(length // POINTS, 1),
            max_cpu_seconds=cut.limit(length),
        ),
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

    Args:
        tasks: the tasks.
        scale: the scale.
        fewer: divides the number of iterations at scale ``cpu``.
    """
    if scale == "full":
        return []
    fewer = fewer if scale == "cpu" else 1
    lengths = {task: configuration(task, "adam", scale).train.iterations or 1 for task in tasks}
    said = ", ".join(f"{TASKS[task]} {length // fewer}" for task, length in lengths.items())
    return [f"Updates: {said}."] if said else []
