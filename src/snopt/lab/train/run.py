"""Between iterations: evaluate, save, decide whether to stop, and end the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from snopt.base.errors import SolveError, unknown
from snopt.lab.train.checkpoint import capture, check_readable, save_best, save_checkpoint
from snopt.lab.train.folder import FolderLock, write_json
from snopt.lab.train.parallel import World, traffic
from snopt.lab.train.record import Record
from snopt.lab.train.seeding import isolated, rng_state
from snopt.lab.train.step import to_device
from snopt.lab.train.task import (
    Examples,
    Metrics,
    Outcome,
    Parts,
    Progress,
    Status,
    Task,
    TrainConfig,
    better,
)
from snopt.optim import SNOpt

__all__ = ["PATIENCE", "Run", "check_target"]

#: Iterations in a row without an update after which a run counts as diverged. One or two may be bad
#: batches; by the fifth, SNOpt's rollbacks have reduced the step size by a factor of 32.
PATIENCE = 5


def check_target(task: Task, config: TrainConfig) -> None:
    """Refuse a target that no evaluation will measure, before anything is computed."""
    if config.until is not None and config.until[0] not in (task.metric, "loss"):
        raise unknown("metric to train until", config.until[0], {task.metric, "loss"})
    for name in ("until", "patience"):
        value = getattr(config, name)
        if value is not None and task.valid is None:
            raise ValueError(
                f"{name} = {value} needs validation examples, and task {task.name!r} has none."
            )


def evaluate(
    task: Task,
    model: nn.Module,
    examples: Examples,
    *,
    batch_size: int,
    seed: int,
    world: World | None = None,
) -> Metrics:
    """Average a task's metrics over examples, in evaluation mode.

    Evaluation has random numbers of its own, the same every time. Processes split the batches. If
    a solve fails, the loss and the task's metric are NaN.
    """
    world = world or World()
    totals: dict[str, float] = {}
    model.eval()
    try:
        with isolated(seed, "evaluation", world.rank), torch.no_grad():
            for start in range(world.rank * batch_size, len(examples), world.size * batch_size):
                indices = torch.arange(start, min(start + batch_size, len(examples)))
                batch = to_device(examples.batch(indices), world.device)
                for name, value in task.metrics(model, batch).items():
                    totals[name] = totals.get(name, 0.0) + float(value) * len(indices)
    except SolveError:
        totals = {"loss": math.nan, task.metric: math.nan}
    finally:
        model.train()
    parts = world.gather(totals)
    means = {
        name: sum(part.get(name, 0.0) for part in parts) / len(examples)
        for name in dict.fromkeys(name for part in parts for name in part)
    }
    missing = {"loss", task.metric} - set(means)
    if missing:
        raise ValueError(
            f"metrics of task {task.name!r} are {sorted(means)}; {sorted(missing)} is missing. "
            "Return 'loss' and the task's own metric."
        )
    return means


def advice(parts: Parts) -> str:
    """Say which settings to change after a run diverged, with their values.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> advice(Parts(model, torch.optim.SGD(model.parameters(), lr=0.5)))
        'lower the learning rate (0.5)'
        >>> advice(Parts(model, SNOpt(model, rule="amortized", lr=0.5, damping=0.1)))
        'lower the learning rate (0.5) or raise the damping (0.1)'
    """
    said = []
    for optimizer in parts.optimizers:
        group = optimizer.param_groups[0]
        text = f"lower the learning rate ({group['lr']:g})"
        if isinstance(optimizer, SNOpt) and optimizer.config.rule == "amortized":
            text += f" or raise the damping ({group['damping']:g})"
        elif isinstance(optimizer, SNOpt):
            text += " or use on_divergence='rollback'"
        said.append(text)
    return ", ".join(dict.fromkeys(said))


@dataclass
class Run:
    """A run under way.

    Attributes:
        splits: The examples of the task by name.
        lock: The lock on the folder.
        identity: Tells this run from others that use the same folder.
        total: Iterations to make; None if only time ends the run.
        requested: Names of signals that asked the run to stop.
        saved: The iteration of the latest checkpoint.
    """

    task: Task
    splits: Mapping[str, Examples | None]
    parts: Parts
    config: TrainConfig
    lock: FolderLock
    identity: str
    world: World
    total: int | None
    record: Record
    requested: Sequence[str]
    progress: Progress = field(default_factory=Progress)
    saved: int | None = None

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.lock.folder

    def evaluate(self, split: str) -> None:
        """Evaluate on the ``"valid"`` or the ``"test"`` examples, if there are any."""
        examples = self.splits[split]
        if examples is None or len(examples) == 0:
            return
        metrics = evaluate(
            self.task,
            self.parts.model,
            examples,
            batch_size=self.config.eval_batch_size,
            seed=self.config.seed,
            world=self.world,
        )
        improved = self.progress.note(self.task, split, metrics)
        self.record.add("eval", **self._place(), split=split, metrics=metrics)
        said = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
        self.record.log(f"iteration {self.progress.iteration}: {split} {said}")
        if improved and self.world.first:
            self.lock.check()
            iteration, model = self.progress.iteration, self.parts.model
            save_best(self.folder, iteration, model, metrics, self.identity)

    def save(self) -> None:
        """Write a checkpoint, unless this iteration has one."""
        iteration = self.progress.iteration
        if self.saved == iteration:
            return
        rng = self.world.gather(rng_state())
        if self.world.first:
            self.lock.check()
            self.record.sync()
            state = capture(self.parts, self.progress, rng, self.identity)
            path = save_checkpoint(self.folder, iteration, state, self.config.keep)
            if self.saved is None:
                check_readable(path)
        self.saved = iteration

    def verdict(self) -> Status | None:
        """Return how the run ends here, or None to continue."""
        progress = self.progress
        if progress.skipped >= PATIENCE:
            return "diverged"
        if self._at_target():
            return "target"
        if self.total is not None and progress.iteration >= self.total:
            return "finished"
        if self.config.patience is not None and progress.stale >= self.config.patience:
            return "plateau"
        budget = self.config.max_seconds
        if budget is not None and self.world.any(progress.seconds >= budget):
            return "budget"
        if self.world.any(bool(self.requested)):
            return "interrupted"
        return None

    def _at_target(self) -> bool:
        if self.config.until is None or "valid" not in self.progress.last:
            return False
        name, target = self.config.until
        value = self.progress.last["valid"][name]
        mode = self.task.mode if name == self.task.metric else "min"
        return value == target or better(mode, value, target)

    # ------------------------------------------------------------------ the end

    def end(self, status: Status) -> Outcome:
        """Evaluate and save for the last time, and record how the run ended."""
        complete = status in ("finished", "target", "budget", "plateau")
        if complete and self.progress.evaluated != self.progress.iteration:
            self.evaluate("valid")
            status = "target" if self._at_target() else status
        if status != "diverged":
            self.save()
        if complete:
            self.evaluate("test")
            self._draw()
        message = self._message(status)
        extra: dict[str, Any] = {}
        if self.world.size > 1:
            sent = traffic(self.parts, self.progress.iteration)
            extra = {"bytes_communicated": sum(sent.values()), "bytes_factors": sent["factors"]}
        self.record.add(
            "end",
            **self._place(),
            status=status,
            message=message,
            final=self.progress.last,
            **extra,
        )
        self.record.log(message)
        progress = self.progress
        outcome = Outcome(
            status=status,
            iteration=progress.iteration,
            seconds=progress.seconds,
            best=progress.best,
            last=progress.last,
            folder=self.folder,
            message=message,
        )
        self.record.tell(lambda listener: listener.on_end(outcome))
        return outcome

    def fail(self, error: BaseException) -> None:
        """Record that an exception ended the run."""
        self.record.fail(f"{type(error).__name__}: {error}", **self._place())
        self.record.tell(lambda listener: listener.on_end(None))

    def _place(self) -> dict[str, Any]:
        return {
            "iteration": self.progress.iteration,
            "seconds": round(self.progress.seconds, 6),
        }

    def _message(self, status: Status) -> str:
        progress, config = self.progress, self.config
        of = f" of {self.total}" if self.total else ""
        at = f"at iteration {progress.iteration}{of}, after {progress.seconds:.1f} s of training"
        if status == "target" and config.until is not None:
            name, target = config.until
            value = progress.last["valid"][name]
            return f"reached {name} {value:.6g} (wanted {target:g}) {at}."
        if status == "budget":
            return f"reached its limit of {config.max_seconds:g} s {at}."
        if status == "plateau":
            return (
                f"stopped early {at}: {progress.stale} evaluations without an improvement on "
                f"{self.task.metric} {progress.best:.6g}."
            )
        if status == "interrupted":
            return (
                f"interrupted {at}. A checkpoint is saved; resume with --resume {self.folder}, or "
                "in Python with train(..., resume=True)."
            )
        if status == "diverged":
            kept = "none" if self.saved is None else f"iteration {self.saved}"
            return (
                f"diverged {at}: {PATIENCE} iterations in a row made no update, because "
                f"{progress.trouble}. Look for NaN in the data, or {advice(self.parts)}. "
                f"Latest checkpoint: {kept}."
            )
        return f"finished {at}."

    def _draw(self) -> None:
        """Write the task's pictures for the report; an error in drawing does not end the run."""
        picture = getattr(self.task, "picture", None)
        if picture is None or not self.world.first:
            return
        self.parts.model.eval()
        try:
            with isolated(self.config.seed, "picture"), torch.no_grad():
                drawn = picture(self.parts.model) or {}
        except Exception as error:  # noqa: BLE001
            self.record.log(f"no picture: {type(error).__name__}: {error}")
            return
        finally:
            self.parts.model.train()
        pictures: Mapping[str, Any] = {"picture": drawn} if "kind" in drawn else drawn
        self.lock.check()
        for name, one in pictures.items():
            write_json(self.folder / "pictures" / f"{name}.json", one)
