"""Everything that a run has to remember: how far it is, and the state of its parts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from snopt.lab.train.folder import RunFolderError
from snopt.lab.train.parallel import World
from snopt.lab.train.seeding import seed_all, set_rng_state
from snopt.lab.train.task import Metrics, Parts, Task, better

__all__ = ["Progress", "capture", "restore"]


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        iteration: Updates made; it decides which examples come next.
        seconds: Seconds of training, evaluation not counted.
        skipped: How many iterations up to now, in a row, made no update.
        trouble: Why the latest of them made none.
        evaluated: The iteration of the latest evaluation on the validation examples.
        best: The best validation value of the task's metric.
        last: The latest metrics of each split.
    """

    iteration: int = 0
    seconds: float = 0.0
    skipped: int = 0
    trouble: str = ""
    evaluated: int | None = None
    best: float | None = None
    last: dict[str, Metrics] = field(default_factory=dict)

    def advance(self, seconds: float, skipped: str | None) -> None:
        """Count one iteration, and why it made no update if it made none."""
        self.iteration += 1
        self.seconds += seconds
        self.skipped = 0 if skipped is None else self.skipped + 1
        self.trouble = skipped or self.trouble

    def note(self, task: Task, split: str, metrics: Metrics) -> None:
        """Remember an evaluation."""
        self.last[split] = metrics
        if split == "valid":
            self.evaluated = self.iteration
            if better(task.mode, metrics[task.metric], self.best):
                self.best = metrics[task.metric]


def capture(parts: Parts, progress: Progress, rng: list[dict[str, Any]]) -> dict[str, Any]:
    """Gather what a checkpoint holds.

    Args:
        parts: The model and what trains it.
        progress: How far the run is.
        rng: The states of every process's random numbers.

    Returns:
        Tensors and plain values.
    """
    return {
        "iteration": progress.iteration,
        "progress": asdict(progress),
        "model": parts.model.state_dict(),
        "kinds": _kinds(parts),
        "optimizers": [optimizer.state_dict() for optimizer in parts.optimizers],
        "schedulers": [scheduler.state_dict() for scheduler in parts.schedulers],
        "horizon": None if parts.horizon is None else parts.horizon.state_dict(),
        "rng": rng,
    }


def _kinds(parts: Parts) -> list[str]:
    """Name what trains the model; torch would load one optimizer's state into another."""
    horizon = [] if parts.horizon is None else [parts.horizon]
    return [type(part).__name__ for part in (*parts.optimizers, *parts.schedulers, *horizon)]


def restore(state: dict[str, Any], parts: Parts, world: World, seed: int) -> Progress:
    """Put parts and random numbers back to where a checkpoint found them.

    Args:
        state: From :func:`capture`.
        parts: Made in the same way as the parts that were saved.
        world: The processes.
        seed: For processes that the saved run did not have.

    Returns:
        How far the run was.

    Raises:
        RunFolderError: If the checkpoint is of other parts.
    """
    if state["kinds"] != _kinds(parts):
        raise RunFolderError(
            f"the checkpoint was made with {' and '.join(state['kinds'])}, not with "
            f"{' and '.join(_kinds(parts))}; resume with what the run was started with."
        )
    steppers = [*parts.optimizers, *parts.schedulers]
    saved = [*state["optimizers"], *state["schedulers"]]
    try:
        parts.model.load_state_dict(state["model"])
        for stepper, one in zip(steppers, saved, strict=True):
            stepper.load_state_dict(one)
        if parts.horizon is not None:
            parts.horizon.load_state_dict(state["horizon"])
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"the checkpoint does not fit the model or its optimizer: {error}. Resume with what "
            "the run was started with."
        ) from error
    progress = Progress(**state["progress"])
    if world.rank < len(state["rng"]):
        set_rng_state(state["rng"][world.rank])
    else:
        seed_all(seed, "training", world.rank, progress.iteration)
    return progress
