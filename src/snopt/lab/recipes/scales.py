"""One recipe at three sizes."""

from __future__ import annotations

from dataclasses import replace

from snopt.lab.config import Experiment, Scale

__all__ = ["shortened", "smoke"]


def smoke(full: Experiment) -> Experiment:
    """Shrink an experiment until it takes seconds: same kind of model, a handful of updates."""
    return replace(
        full,
        scale="smoke",
        data=replace(full.data, examples=48, hold_out=True),
        model=replace(full.model, width=min(full.model.width, 8), stacks=min(full.model.stacks, 2)),
        solver=replace(full.solver, rtol=1e-2, atol=1e-2),
        train=replace(full.train, iterations=3, epochs=None, batch_size=16, evaluate_every=3),
    )


def shortened(
    full: Experiment,
    scale: Scale,
    *,
    iterations: int,
    evaluate_every: int,
    of: int,
    width: int | None = None,
    stacks: int | None = None,
) -> Experiment:
    """Cut an experiment to so many iterations, its learning-rate schedule in proportion.

    Args:
        full: the experiment to cut.
        scale: what to call the result.
        iterations: updates to make.
        evaluate_every: iterations between evaluations.
        of: updates that the whole experiment makes.
        width: of the model, if it is to be narrower.
        stacks: of the model, if there are to be fewer.
    """
    milestones = tuple(round(m * iterations / of) for m in full.optimizer.milestones)
    return replace(
        full,
        scale=scale,
        data=replace(full.data, hold_out=True),
        model=replace(
            full.model, width=width or full.model.width, stacks=stacks or full.model.stacks
        ),
        optimizer=replace(full.optimizer, milestones=milestones),
        train=replace(
            full.train, iterations=iterations, epochs=None, evaluate_every=evaluate_every
        ),
    )
