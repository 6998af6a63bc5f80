"""The paper's experiments at three sizes.

``full`` is the recipe itself, ``smoke`` three updates of it. ``cpu`` is meant to reach flat
validation curves on two cores (:func:`snopt.lab.paper.curves.last_gain`): the recipe's model and
solver with fewer iterations, half the channels for images, and one learning rate for all methods
outside the vector field. Its learning rates are chosen anew, constant or with a cosine schedule,
so the published schedules do not apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.recipes import recipe

SEEDS: dict[Scale, int] = {"smoke": 1, "cpu": 3, "full": 3}
"""Number of seeds, from 0."""
TUNING_SEED = 10
"""Seed of the search for learning rates, which no table reports."""
REST_LR = 3e-3
"""Adam's rate outside the vector field of series models, at scale ``cpu``."""


@dataclass(frozen=True)
class Cut:
    """A task at scale ``cpu``.

    Attributes:
        iterations: updates of a reported run.
        width: channels of image models; by default those of the recipe.
        compile: whether to compile whole steps.
    """

    iterations: int
    width: int | None = None
    compile: bool = False


CUTS: dict[str, Cut] = {
    "mnist": Cut(1500, width=32),
    "svhn": Cut(150, width=32),
    "cifar10": Cut(800, width=32),
    "spoken_arabic_digits": Cut(1000, compile=True),
    "articulary_word_recognition": Cut(300, compile=True),
    "character_trajectories": Cut(500, compile=True),
    "circle": Cut(1000),
    "gas": Cut(600),
    "miniboone": Cut(400),
}
LONGEST = 3600.0
"""Seconds after which a run at scale ``cpu`` ends, whatever its number of updates."""
VALID_EXAMPLES = 1000
POINTS = 20
"""Evaluations along a run."""


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
        32
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
            evaluate_every=max(length // POINTS, 1),
            max_seconds=LONGEST,
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
    """Return a note per task on what the scale reduces.

    Args:
        tasks: the tasks.
        scale: the scale.
        fewer: divides the number of iterations at scale ``cpu``.
    """
    notes = []
    for task in tasks if scale != "full" else ():
        config = configuration(task, "adam", scale)
        length = (config.train.iterations or 1) // (fewer if scale == "cpu" else 1)
        note = f"{task}: {length} iterations"
        if config.model.kind == "image" and config.model.width != 64:
            note += f", {config.model.width} channels instead of 64"
        notes.append(f"{note}; {PARTS[task]}" if scale == "cpu" and task in PARTS else note)
    return notes
