"""What a run is made of: a task, the parts that learn it, a configuration, an outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from snopt.horizon import HorizonOptimizer

__all__ = [
    "Examples",
    "Listener",
    "Metrics",
    "Outcome",
    "Parts",
    "Scheduler",
    "Status",
    "Task",
    "TrainConfig",
]

Metrics: TypeAlias = dict[str, float]
Status: TypeAlias = Literal["finished", "target", "budget", "interrupted", "diverged"]

#: What the process should return to its shell. 130 is what shells give a command ended by Ctrl-C.
EXIT_CODES: dict[Status, int] = {
    "finished": 0,
    "target": 0,
    "budget": 0,
    "diverged": 3,
    "interrupted": 130,
}


class Examples(Protocol):
    """A set of examples; :class:`snopt.lab.data.Dataset` is one."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Any:
        """Return the examples at ``indices``: a tensor, a tuple, or anything with ``.to``."""
        ...


class Task(Protocol):
    """What is to be learnt. Any object with these names is a task; there is nothing to inherit.

    A task may also have a method ``picture(model)``. What it returns is written to the folder
    ``pictures`` at the end of a run, for the report: a dictionary with a ``"kind"``, or several
    of them by file name.

    Attributes:
        name: What the task is called in records.
        metric: The metric that matters, among those of :meth:`metrics`.
        mode: Whether more of it is better (``"max"``) or less (``"min"``).
        train: Examples to learn from.
        valid: Examples to evaluate on while learning; None for no evaluation.
        test: Examples to evaluate on once, at the end; None for no such evaluation.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def metric(self) -> str: ...  # noqa: D102
    @property
    def mode(self) -> Literal["max", "min"]: ...  # noqa: D102
    @property
    def train(self) -> Examples: ...  # noqa: D102
    @property
    def valid(self) -> Examples | None: ...  # noqa: D102
    @property
    def test(self) -> Examples | None: ...  # noqa: D102

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss of a batch, to be differentiated."""
        ...

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Return means over a batch, ``"loss"`` and ``self.metric`` among them.

        Called in evaluation mode and without gradients.
        """
        ...


class Scheduler(Protocol):
    """A learning-rate schedule that steps once an iteration; torch's are such."""

    def step(self) -> Any: ...  # noqa: D102
    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102
    def load_state_dict(self, state_dict: Any) -> Any: ...  # noqa: D102


@dataclass(frozen=True)
class Parts:
    """What changes during a run, and is saved in checkpoints.

    Attributes:
        model: The model, not wrapped: :func:`train` wraps it when several processes train it.
        optimizer: One optimizer, or several that share out the parameters.
        schedulers: Learning-rate schedules, stepped after every iteration.
        horizon: Learns the horizon beside them, stepped after the optimizers.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
    schedulers: Sequence[Scheduler] = ()
    horizon: HorizonOptimizer | None = None

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """All optimizers, also when there is one only."""
        if isinstance(self.optimizer, torch.optim.Optimizer):
            return [self.optimizer]
        return list(self.optimizer)


@dataclass(frozen=True)
class TrainConfig:
    """How long a run is, and what happens when.

    Attributes:
        iterations: Updates to make. Give this, or ``epochs``, or ``max_seconds``.
        epochs: Passes over the training examples; the last, incomplete batch of a pass is left
            out, so that all batches have one size.
        batch_size: Examples of an update, all processes together.
        eval_batch_size: Examples of an evaluation's batches.
        seed: Decides the order of the data and the random numbers of the run.
        evaluate_every: Iterations between evaluations on ``task.valid``; once an epoch if not
            given. The untrained and the final model are evaluated always.
        until: Stop when a validation metric is reached, for example ``("accuracy", 0.98)``.
        max_seconds: Stop after so many seconds of training (evaluation not counted).
        checkpoint_every: Iterations between checkpoints; after every evaluation if not given.
        keep: How many checkpoints are kept.
        clip: Largest norm of the gradient.
        record_every: Iterations between records of steps.

    Example:
        >>> TrainConfig(iterations=100, batch_size=0)
        Traceback (most recent call last):
        ValueError: batch_size is 0; it must be at least 1.
    """

    iterations: int | None = None
    epochs: int | None = None
    batch_size: int = 128
    eval_batch_size: int = 1000
    seed: int = 0
    evaluate_every: int | None = None
    until: tuple[str, float] | None = None
    max_seconds: float | None = None
    checkpoint_every: int | None = None
    keep: int = 3
    clip: float | None = None
    record_every: int = 1

    def __post_init__(self) -> None:
        counts = (
            "iterations epochs batch_size eval_batch_size evaluate_every checkpoint_every keep "
            "record_every"
        )
        for name in counts.split():
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1.")
        for name in ("max_seconds", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; it must be positive.")
        if self.iterations is not None and self.epochs is not None:
            raise ValueError(
                f"iterations = {self.iterations} and epochs = {self.epochs} both say how long the "
                "run is; give one of them."
            )
        if self.iterations is None and self.epochs is None and self.max_seconds is None:
            raise ValueError("the run would never end; give iterations, epochs or max_seconds.")

    def total(self, per_epoch: int) -> int | None:
        """Return the number of updates of the run; None if only time ends it.

        Args:
            per_epoch: The number of updates in one pass over the examples.

        Example:
            >>> TrainConfig(epochs=3).total(per_epoch=100)
            300
        """
        return self.iterations if self.epochs is None else self.epochs * per_epoch


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: ``finished`` all iterations, reached the ``target``, used up its time
            (``budget``), was ``interrupted``, or ``diverged``.
        iteration: Updates made.
        seconds: Seconds of training, evaluation not counted.
        best: The best validation value of the task's metric; None without an evaluation.
        last: The latest metrics of each split.
        folder: The run folder.
        message: One sentence for people.
    """

    status: Status
    iteration: int
    seconds: float
    best: float | None = None
    last: Mapping[str, Metrics] = field(default_factory=dict)
    folder: Path = Path()
    message: str = ""

    @property
    def exit_code(self) -> int:
        """0 if the run went as asked, 3 if it diverged, 130 if it was interrupted."""
        return EXIT_CODES[self.status]


class Listener(Protocol):
    """Something that watches a run: a progress bar, a writer of another format.

    It is called in the first process only.
    """

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Called once, before anything is computed; ``total`` is the number of iterations."""
        ...

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Called with every record that goes to ``metrics.jsonl``."""
        ...

    def on_end(self, outcome: Outcome | None) -> None:
        """Called once, last; with None if the run failed."""
        ...


def better(mode: str, value: float, than: float | None) -> bool:
    """Tell whether a metric's value is an improvement.

    Example:
        >>> better("max", 0.9, 0.8), better("min", 0.9, 0.8), better("min", math.nan, None)
        (True, False, False)
    """
    if math.isnan(value):
        return False
    return than is None or (value > than if mode == "max" else value < than)
