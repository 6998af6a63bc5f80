"""What happens between iterations: evaluating, saving, deciding, ending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from snopt.base.errors import unknown
from snopt.lab.train.checkpoint import check_readable, save_checkpoint
from snopt.lab.train.evaluation import evaluate
from snopt.lab.train.folder import write_json
from snopt.lab.train.interrupt import Interruption
from snopt.lab.train.parallel import World, traffic
from snopt.lab.train.record import Record
from snopt.lab.train.seeding import isolated, rng_state
from snopt.lab.train.state import Progress, capture
from snopt.lab.train.task import Outcome, Parts, Status, Task, TrainConfig, better

__all__ = ["PATIENCE", "Run", "check_target"]

#: So many iterations in a row without a usable loss, and the run has diverged. One or two may be
#: bad batches; and by the fifth, SNOpt's rollbacks have shortened its steps 32 times over.
PATIENCE = 5


def check_target(task: Task, config: TrainConfig) -> None:
    """Refuse a target that the run could not notice, before anything is computed.

    Args:
        task: Knows its metric.
        config: Knows the target.
    """
    if config.until is None:
        return
    if config.until[0] not in (task.metric, "loss"):
        raise unknown("metric to train until", config.until[0], {task.metric, "loss"})
    if task.valid is None:
        raise ValueError(
            f"until = {config.until} needs validation examples, and task {task.name!r} has none."
        )


@dataclass
class Run:
    """A run under way.

    Attributes:
        task: What is learnt.
        parts: The model and what trains it.
        config: How long, and what happens when.
        folder: The run folder.
        world: The processes.
        total: Iterations to make; None if only time ends the run.
        record: Where everything is written down.
        interruption: Whether somebody asked the run to stop.
        progress: How far it is.
        saved: The iteration of the latest checkpoint.
    """

    task: Task
    parts: Parts
    config: TrainConfig
    folder: Path
    world: World
    total: int | None
    record: Record
    interruption: Interruption
    progress: Progress = field(default_factory=Progress)
    saved: int | None = None

    def evaluate(self, split: str) -> None:
        """Evaluate the model on the ``"valid"`` or the ``"test"`` examples, if there are any."""
        examples = self.task.valid if split == "valid" else self.task.test
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
        self.progress.note(self.task, split, metrics)
        self.record.add("eval", **self._place(), split=split, metrics=metrics)
        said = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
        self.record.log(f"iteration {self.progress.iteration}: {split} {said}")

    def save(self) -> None:
        """Write a checkpoint, unless there is one of this iteration."""
        iteration = self.progress.iteration
        if self.saved == iteration:
            return
        rng = self.world.gather(rng_state())
        if self.world.first:
            self.record.sync()
            state = capture(self.parts, self.progress, rng)
            path = save_checkpoint(self.folder, iteration, state, self.config.keep)
            if self.saved is None:
                check_readable(path)
        self.saved = iteration

    def verdict(self) -> Status | None:
        """Tell whether the run is to end here, and how; None to go on."""
        progress = self.progress
        if progress.skipped >= PATIENCE:
            return "diverged"
        if self._at_target():
            return "target"
        if self.total is not None and progress.iteration >= self.total:
            return "finished"
        budget = self.config.max_seconds
        if budget is not None and self.world.any(progress.seconds >= budget):
            return "budget"
        if self.world.any(self.interruption.requested is not None):
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
        """Evaluate and save for the last time, and write down how the run ended.

        Args:
            status: From :meth:`verdict`.

        Returns:
            What the caller of :func:`snopt.lab.train.train` gets.
        """
        complete = status in ("finished", "target", "budget")
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
        """Write down that an exception ended the run."""
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
            return f"used up its {config.max_seconds:g} s {at}."
        if status == "interrupted":
            return (
                f"interrupted {at}. Everything is saved; resume it with --resume {self.folder}, "
                "or in Python with train(..., resume=True)."
            )
        if status == "diverged":
            kept = "Nothing" if self.saved is None else f"Iteration {self.saved}"
            return (
                f"diverged {at}: no update {PATIENCE} times in a row, because {progress.trouble}. "
                "Look for NaN in the data, lower the learning rate, or raise the damping. "
                f"{kept} is saved."
            )
        return f"finished {at}."

    def _draw(self) -> None:
        """Let the task draw the model for the report; a picture that fails is no failure."""
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
        for name, one in pictures.items():
            write_json(self.folder / "pictures" / f"{name}.json", one)
