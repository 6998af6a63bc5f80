"""The parts of a run: task, model with optimizers, configuration, progress, outcome."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from snopt.base.errors import unknown
from snopt.horizon import HorizonOptimizer

Metrics: TypeAlias = dict[str, float]
Status: TypeAlias = Literal["finished", "target", "budget", "plateau", "interrupted", "diverged"]

#: Number of updates in the running median of evaluations.
COSTS = 50
#: An update is aborted after this many times the running median of evaluations. Normal training
#: makes a field stiffer over many updates; a bad step does so in one.
TIMES_MEDIAN = 50
#: Smallest limit; this many evaluations take a second or two.
LEAST_BOUND = 1000


class Examples(Protocol):
    """A set of examples; :class:`snopt.lab.data.Dataset` is one."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Any:
        """Return the examples at ``indices``: a tensor, a tuple, or anything with ``.to``."""
        ...


class Task(Protocol):
    """Data, loss and metrics. Any object with these attributes is a task; no base class is needed.

    A task may also have a method ``picture(model)``. It returns a dictionary with a ``"kind"``, or
    several of them by file name; they are written to ``pictures`` at the end of a run, for the
    report.

    Attributes:
        name: name of the task in records.
        metric: the metric that runs are judged by, among those of :meth:`metrics`.
        mode: ``"max"`` if larger values of the metric are better, else ``"min"``.
        train: training examples: with ``batch(indices)``, or a torch ``Dataset`` or ``DataLoader``.
        valid: examples to evaluate on during training; None for no evaluation.
        test: examples to evaluate on once, at the end; None for no evaluation.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def metric(self) -> str: ...  # noqa: D102
    @property
    def mode(self) -> Literal["max", "min"]: ...  # noqa: D102
    @property
    def train(self) -> Any: ...  # noqa: D102
    @property
    def valid(self) -> Any: ...  # noqa: D102
    @property
    def test(self) -> Any: ...  # noqa: D102

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the mean loss of a batch."""
        ...

    def metrics(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Return means over a batch, ``"loss"`` and ``self.metric`` among them.

        Called in evaluation mode and without gradients.
        """
        ...


class Scheduler(Protocol):
    """A learning-rate schedule, stepped once per iteration, such as torch's."""

    def step(self) -> Any: ...  # noqa: D102
    def state_dict(self) -> dict[str, Any]: ...  # noqa: D102
    def load_state_dict(self, state_dict: Any) -> Any: ...  # noqa: D102


@dataclass(frozen=True)
class Parts:
    """The objects that change during a run and are saved in checkpoints.

    Attributes:
        model: the model, not wrapped; :func:`train` wraps it for several processes.
        optimizer: one optimizer, or several for different parameters.
        schedulers: learning-rate schedules, stepped after every iteration.
        horizon: learns the integration time; stepped after the optimizers.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
    schedulers: Sequence[Scheduler] = ()
    horizon: HorizonOptimizer | None = None

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers as a list, even if there is only one."""
        if isinstance(self.optimizer, torch.optim.Optimizer):
            return [self.optimizer]
        return list(self.optimizer)


def at_least(config: object, **bounds: int) -> None:
    """Raise ValueError for settings below their bounds; None is allowed."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ValueError(f"{name} is {value}; it must be at least {bound}.")


@dataclass(frozen=True)
class TrainConfig:
    """Length of a run, and intervals of evaluations and checkpoints.

    Attributes:
        iterations: updates to make. Give this, or ``epochs``, or ``max_seconds``.
        epochs: passes over the training examples; the last, incomplete batch of a pass is dropped.
        batch_size: examples per update, over all processes.
        eval_batch_size: examples per batch of an evaluation.
        seed: seed of the order of the data and of the random numbers of the run.
        evaluate_every: iterations between evaluations on ``task.valid``; default once per epoch.
            The untrained and the final model are always evaluated.
        until: stop when a validation metric is reached, for example ``("accuracy", 0.98)``.
        max_seconds: stop after this many seconds of training, evaluation not counted.
        max_cpu_seconds: the same in CPU seconds of the first process, which depend less on what
            else the machine does.
        patience: stop after this many evaluations in a row without a new best value of the task's
            metric on ``task.valid``.
        checkpoint_every: iterations between checkpoints; default after every evaluation.
        keep: number of checkpoints to keep.
        clip: largest norm of the gradient.
        record_every: iterations between records of steps.

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
    max_cpu_seconds: float | None = None
    patience: int | None = None
    checkpoint_every: int | None = None
    keep: int = 3
    clip: float | None = None
    record_every: int = 1

    def __post_init__(self) -> None:
        counts = (
            "iterations epochs batch_size eval_batch_size evaluate_every patience checkpoint_every "
            "keep record_every"
        )
        at_least(self, **dict.fromkeys(counts.split(), 1))
        for name in ("max_seconds", "max_cpu_seconds", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; it must be positive.")
        if self.iterations is not None and self.epochs is not None:
            raise ValueError(
                f"iterations = {self.iterations} and epochs = {self.epochs} both set the length of "
                "the run; give one of them."
            )
        lengths = (self.iterations, self.epochs, self.max_seconds, self.max_cpu_seconds)
        if all(length is None for length in lengths):
            raise ValueError("the run would never end; give iterations, epochs or max_seconds.")

    def total(self, per_epoch: int) -> int | None:
        """Return the number of updates of the run; None if only time ends it.

        Example:
            >>> TrainConfig(epochs=3).total(per_epoch=100)
            300
        """
        return self.iterations if self.epochs is None else self.epochs * per_epoch


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: ``finished`` all iterations, reached the ``target``, reached ``max_seconds``
            (``budget``), ran out of ``patience`` (``plateau``), was ``interrupted``, or
            ``diverged``.
        iteration: updates made.
        seconds: seconds of training, evaluation not counted.
        best: the best validation value of the task's metric; None without an evaluation.
        last: the latest metrics of each split.
        folder: the run folder.
        message: the status as a sentence.
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
        """0 if the run succeeded, 3 if it diverged, 130 if it was interrupted."""
        # 130 is the shells' code for Ctrl-C.
        return {"diverged": 3, "interrupted": 130}.get(self.status, 0)


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        iteration: updates made; it determines which examples come next.
        seconds: seconds of training, evaluation not counted.
        cpu_seconds: CPU time of training, summed over threads.
        skipped: number of latest consecutive iterations without an update.
        trouble: why the latest skipped iteration made no update.
        evaluated: the iteration of the latest evaluation on the validation examples.
        best: the best validation value of the task's metric.
        stale: evaluations on the validation examples since the best one.
        last: the latest metrics of each split.
        costs: evaluations of the field in the latest updates.
    """

    iteration: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    skipped: int = 0
    trouble: str = ""
    evaluated: int | None = None
    best: float | None = None
    stale: int = 0
    last: dict[str, Metrics] = field(default_factory=dict)
    costs: list[int] = field(default_factory=list)

    def advance(
        self, seconds: float, skipped: str | None, *, cpu_seconds: float = 0.0, cost: int = 0
    ) -> None:
        """Count one iteration; ``skipped`` says why it made no update."""
        self.iteration += 1
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.skipped = 0 if skipped is None else self.skipped + 1
        self.trouble = skipped or self.trouble
        if skipped is None and cost:
            self.costs = [*self.costs[1 - COSTS :], cost]

    def most_evaluations(self) -> int | None:
        """Return the largest number of evaluations of the field in one update.

        It is a multiple of the running median per update; None before the first update.

        Example:
            >>> Progress(costs=[26] * 20).most_evaluations()
            1300
        """
        if not self.costs:
            return None
        return max(LEAST_BOUND, int(TIMES_MEDIAN * statistics.median(self.costs)))

    def note(self, task: Task, split: str, metrics: Metrics) -> bool:
        """Store the metrics of an evaluation; return whether the validation metric is the best."""
        self.last[split] = metrics
        if split != "valid":
            return False
        self.evaluated = self.iteration
        improved = better(task.mode, metrics[task.metric], self.best)
        if improved:
            self.best = metrics[task.metric]
        self.stale = 0 if improved else self.stale + 1
        return improved


class Listener(Protocol):
    """Receives the records of a run on the first process, for example a progress bar."""

    def on_start(self, total: int | None, config: TrainConfig) -> None:
        """Called once, before anything is computed; ``total`` is the number of iterations."""
        ...

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Called with every record that goes to ``metrics.jsonl``."""
        ...

    def on_end(self, outcome: Outcome | None) -> None:
        """Called once at the end; with None if the run failed."""
        ...


def better(mode: str, value: float, than: float | None) -> bool:
    """Return whether a value of a metric is an improvement.

    Example:
        >>> better("max", 0.9, 0.8), better("min", 0.9, 0.8), better("min", math.nan, None)
        (True, False, False)
    """
    if math.isnan(value):
        return False
    return than is None or (value > than if mode == "max" else value < than)


# ------------------------------------------------------------------- torch's data sets


class Collated:
    """The examples of a torch data set, collated into batches.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> examples = Collated(TensorDataset(torch.arange(4), torch.arange(4) * 10))
        >>> examples.batch(torch.tensor([3, 1]))
        [tensor([3, 1]), tensor([30, 10])]
    """

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] = default_collate) -> None:
        self.data, self.collate = data, collate

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, indices: Tensor) -> Any:
        """Return the examples at ``indices``."""
        places = indices.tolist()
        if hasattr(self.data, "__getitems__"):
            return self.collate(self.data.__getitems__(places))
        return self.collate([self.data[place] for place in places])


def splits_of(task: Task, config: TrainConfig) -> dict[str, Any]:
    """Return the examples of a task by split, after checking that the loop can use them."""
    if config.until is not None and config.until[0] not in (task.metric, "loss"):
        raise unknown("metric to train until", config.until[0], {task.metric, "loss"})
    for name in ("until", "patience"):
        value = getattr(config, name)
        if value is not None and task.valid is None:
            raise ValueError(
                f"{name} = {value} needs validation examples, and task {task.name!r} has none."
            )
    loader = task.train
    if isinstance(loader, DataLoader) and loader.batch_size != config.batch_size:
        raise ValueError(
            f"task.train has batch_size {loader.batch_size}, but TrainConfig has "
            f"{config.batch_size}; use the same value, or pass the data set as task.train."
        )
    return {name: _examples(name, getattr(task, name)) for name in ("train", "valid", "test")}


def _examples(name: str, given: Any) -> Examples | None:
    if (given is None and name != "train") or (
        hasattr(given, "batch") and hasattr(given, "__len__")
    ):
        examples: Examples | None = given
        return examples
    collate = default_collate
    if isinstance(given, DataLoader):
        stream = isinstance(given.dataset, IterableDataset)
        if not stream and not isinstance(given.sampler, (RandomSampler, SequentialSampler)):
            raise ValueError(
                f"task.{name} has its own sampler ({type(given.sampler).__name__}); the order of "
                "the data is determined by the seed for resuming runs. Remove the sampler."
            )
        given, collate = given.dataset, given.collate_fn
    elif not isinstance(given, Dataset):
        raise TypeError(
            f"task.{name} is a {type(given).__name__}; give a torch Dataset or DataLoader, or an "
            "object with a length and batch(indices)."
        )
    if isinstance(given, IterableDataset) or not hasattr(given, "__len__"):
        raise TypeError(
            f"task.{name} is a {type(given).__name__}, which has no length; the loop needs "
            "examples by index. Give a data set with __len__ and __getitem__."
        )
    return Collated(given, collate)
