"""The training loop, with evaluations, checkpoints and the end of a run."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from snopt.lab.train.checkpoint import capture, check_readable, open_run, save_checkpoint
from snopt.lab.train.folder import FORMAT, FolderLock, now, write_json
from snopt.lab.train.parallel import World, join, loss_function, stop_requests, traffic
from snopt.lab.train.record import Record
from snopt.lab.train.seeding import Order, isolated, rng_state, seed_all
from snopt.lab.train.step import (
    Meter,
    Update,
    advice,
    evaluate,
    evaluations,
    to_device,
    weights_for,
)
from snopt.lab.train.task import (
    Listener,
    Outcome,
    Parts,
    Progress,
    Status,
    Task,
    TrainConfig,
    better,
    splits_of,
)

#: A run has diverged after this many consecutive iterations without an update. One or two may be
#: bad batches; by the fifth, SNOpt's rollbacks have reduced the step size by a factor of 32.
PATIENCE = 5


def train(
    task: Task,
    parts: Parts,
    config: TrainConfig,
    folder: str | Path,
    *,
    describe: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train a model, with logs and checkpoints in a run folder.

    The folder holds ``config.json``, ``environment.json``, ``metrics.jsonl``, ``checkpoints`` and
    ``log.txt``. A run can be resumed after it was killed at any time. On one process the result is
    then bitwise identical to that of an uninterrupted run.

    Ctrl-C (and SIGTERM, SIGHUP) finishes the step, saves and returns. Under torchrun the processes
    split every batch; see :func:`join`.

    Args:
        task: data, loss and metrics.
        parts: the model and its optimizers; to resume a run, build them again.
        config: length of the run, and intervals of evaluations and checkpoints.
        folder: the run folder; created if it does not exist.
        describe: extra entries for ``config.json``.
        resume: resume the run in the folder, from the start if it has no checkpoint yet.
        overwrite: delete the run in the folder and start again. Without ``overwrite`` and
            ``resume``, a folder that holds a run raises an error, unless the run failed before its
            first checkpoint.
        listeners: receive every record, on the first process.

    Returns:
        status, metrics and folder of the run.

    Raises:
        RunFolderError: the folder cannot be written to, is in use, holds another run, or is
            removed during the run.

    Example:
        >>> import tempfile
        >>> from types import SimpleNamespace
        >>> class Numbers:
        ...     def __len__(self):
        ...         return 64
        ...     def batch(self, indices):
        ...         return torch.linspace(-1, 1, 64)[indices, None]
        >>> def loss(model, x):
        ...     return (model(x) - 3 * x).square().mean()
        >>> task = SimpleNamespace(
        ...     name="triple", metric="loss", mode="min", train=Numbers(), valid=Numbers(),
        ...     test=None, loss=loss, metrics=lambda model, x: {"loss": loss(model, x)},
        ... )
        >>> model = torch.nn.Linear(1, 1)
        >>> parts = Parts(model, torch.optim.SGD(model.parameters(), lr=0.5))
        >>> config = TrainConfig(iterations=200, batch_size=16, until=("loss", 1e-6))
        >>> outcome = train(task, parts, config, tempfile.mkdtemp())
        >>> outcome.status, round(model.weight.item(), 2)
        ('target', 3.0)
    """
    if resume and overwrite:
        raise ValueError("resume and overwrite exclude each other; give one of them.")
    splits = splits_of(task, config)
    with ExitStack() as stack:
        device = next((p.device for p in parts.model.parameters()), torch.device("cpu"))
        world = stack.enter_context(join(device))
        order = Order(
            len(splits["train"]), config.batch_size, config.seed, rank=world.rank, ranks=world.size
        )
        requested = stack.enter_context(stop_requests())
        lock = FolderLock(Path(folder))
        stack.callback(lock.release)
        settings = {
            "task": task.name,
            "optimizer": "+".join(type(optimizer).__name__ for optimizer in parts.optimizers),
            "seed": config.seed,
            **(describe or {}),
            "train": asdict(config),
        }
        reached, complaints = open_run(
            lock, parts, settings, world, resume=resume, overwrite=overwrite
        )
        record = Record(lock.folder if world.first else None, listeners, lock.check)
        stack.callback(record.close)
        update = Update(
            loss_function(task, parts.model, world), parts, clip=config.clip, world=world
        )
        stack.callback(update.bound, None)
        run = Run(
            task, splits, parts, config, lock, settings["run"], world, order, record, requested
        )
        try:
            run.begin(reached, complaints)
            return run.end(run.loop(update))
        except BaseException as error:
            run.fail(error)
            raise


@dataclass
class Run:
    """The state of a run, and its training loop.

    Attributes:
        splits: the examples of the task by name.
        lock: the lock on the folder.
        identity: distinguishes this run from others in the same folder.
        order: the order of the training examples.
        requested: names of signals that asked the run to stop.
        saved: the iteration of the latest checkpoint.
    """

    task: Task
    splits: Mapping[str, Any]
    parts: Parts
    config: TrainConfig
    lock: FolderLock
    identity: str
    world: World
    order: Order
    record: Record
    requested: Sequence[str]
    progress: Progress = field(default_factory=Progress)
    saved: int | None = None

    @property
    def total(self) -> int | None:
        """Number of iterations; None if only time ends the run."""
        return self.config.total(self.order.per_epoch)

    def begin(self, reached: Progress | None, complaints: Sequence[str]) -> None:
        """Use the restored progress, or seed a new run, and log which."""
        self.record.tell(lambda listener: listener.on_start(self.total, self.config))
        said = "started"
        if reached is None:
            seed_all(self.config.seed, "training", self.world.rank)
        else:
            self.progress, self.saved = reached, reached.iteration
            said = f"resumed from iteration {reached.iteration}"
        self.record.add("start", time=now(), resumed_from=self.saved, format=FORMAT)
        where = f"on {socket.gethostname()}, process {os.getpid()}, torch {torch.__version__}"
        self.record.log(f"{said} {where}")
        for complaint in complaints:
            self.record.log(complaint)
            warnings.warn(complaint, RuntimeWarning, stacklevel=3)

    def loop(self, update: Update) -> Status:
        """Train until :meth:`verdict` ends the run."""
        parts, config, world, progress = self.parts, self.config, self.world, self.progress
        examples, order = self.splits["train"], self.order
        evaluate_every = config.evaluate_every or order.per_epoch
        save_every = config.checkpoint_every or evaluate_every
        meter = Meter(parts.model, world.device)
        rate = parts.optimizers[0].param_groups[0]
        parts.model.train()
        weights_for("train", parts)
        if progress.evaluated is None:
            self.evaluate("valid")
        update.bound(progress.most_evaluations())
        while (status := self.verdict()) is None:
            meter.reset()
            begun, begun_cpu = time.perf_counter(), time.process_time()
            batch = to_device(examples.batch(order.indices(progress.iteration)), world.device)
            loss, skipped = update(batch)
            lr = float(rate["lr"])
            for scheduler in parts.schedulers:
                scheduler.step()
            evaluation_due = (progress.iteration + 1) % evaluate_every == 0
            if evaluation_due and world.device.type == "cuda":
                torch.cuda.synchronize(world.device)  # Queued work is training time.
            spent, spent_cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
            progress.advance(spent, skipped, cpu_seconds=spent_cpu, cost=evaluations(meter.blocks))
            update.bound(progress.most_evaluations())
            if progress.iteration % config.record_every == 0:
                numbers = {"cpu_seconds": round(progress.cpu_seconds, 6), "loss": loss, "lr": lr}
                numbers |= meter.read() | ({} if skipped is None else {"skipped": skipped})
                epoch = order.epoch(progress.iteration - 1)
                self.record.add("step", **self._place(), epoch=epoch, **numbers)
            if evaluation_due:
                self.evaluate("valid")
            if progress.iteration % save_every == 0:
                self.save()
        return status

    def evaluate(self, split: str) -> None:
        """Evaluate on the ``"valid"`` or the ``"test"`` examples, if there are any."""
        examples, config, iteration = self.splits[split], self.config, self.progress.iteration
        if examples is None or len(examples) == 0:
            return
        weights_for("eval", self.parts)
        metrics = evaluate(
            self.task, self.parts.model, examples,
            batch_size=config.eval_batch_size, seed=config.seed, world=self.world,
        )  # fmt: skip
        improved = self.progress.note(self.task, split, metrics)
        self.record.add("eval", **self._place(), split=split, metrics=metrics)
        said = ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
        self.record.log(f"iteration {iteration}: {split} {said}")
        if improved and self.world.first:
            self.lock.check()
            state = {"format": FORMAT, "run": self.identity, "iteration": iteration}
            state |= {"metrics": metrics, "model": self.parts.model.state_dict()}
            save_checkpoint(self.lock.folder, iteration, state, keep=1, sort="best")
        weights_for("train", self.parts)

    def save(self) -> None:
        """Write a checkpoint, unless this iteration already has one."""
        iteration = self.progress.iteration
        if self.saved == iteration:
            return
        rng = self.world.gather(rng_state())
        if self.world.first:
            self.lock.check()
            self.record.sync()
            state = capture(self.parts, self.progress, rng, self.identity)
            path = save_checkpoint(self.lock.folder, iteration, state, self.config.keep)
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
        if self.world.any(self._spent() is not None):
            return "budget"
        return "interrupted" if self.world.any(bool(self.requested)) else None

    def _spent(self) -> str | None:
        """Return which limit on time this process has reached."""
        config, progress = self.config, self.progress
        if config.max_seconds is not None and progress.seconds >= config.max_seconds:
            return f"{config.max_seconds:g} s"
        limit = config.max_cpu_seconds
        reached = limit is not None and progress.cpu_seconds >= limit
        return f"{limit:g} CPU s" if reached else None

    def _at_target(self) -> bool:
        if self.config.until is None or "valid" not in self.progress.last:
            return False
        name, target = self.config.until
        value = self.progress.last["valid"][name]
        mode = self.task.mode if name == self.task.metric else "min"
        return value == target or better(mode, value, target)

    # ------------------------------------------------------------------ the end

    def end(self, status: Status) -> Outcome:
        """Make the final evaluation and checkpoint, and record how the run ended."""
        progress = self.progress
        complete = status not in ("diverged", "interrupted")
        if complete and progress.evaluated != progress.iteration:
            self.evaluate("valid")
            status = "target" if self._at_target() else status
        if status != "diverged":
            self.save()
        if complete:
            self.evaluate("test")
            weights_for("eval", self.parts)  # the caller gets the model that was evaluated
            self._draw()
        message = self._message(status)
        extra: dict[str, Any] = {}
        if self.world.size > 1:
            sent = traffic(self.parts, progress.iteration)
            extra = {"bytes_communicated": sum(sent.values()), "bytes_factors": sent["factors"]}
        ended = {"status": status, "message": message, "final": progress.last}
        self.record.add("end", **self._place(), **ended, **extra)
        self.record.log(message)
        outcome = Outcome(
            status, progress.iteration, progress.seconds, progress.best, progress.last,
            self.lock.folder, message,
        )  # fmt: skip
        self.record.tell(lambda listener: listener.on_end(outcome))
        return outcome

    def fail(self, error: BaseException) -> None:
        """Record that an exception ended the run."""
        self.record.fail(f"{type(error).__name__}: {error}", **self._place())
        for listener in self.record.listeners:
            # Recording may be what failed; a second error must not hide the first.
            with suppress(Exception):
                listener.on_end(None)

    def _place(self) -> dict[str, Any]:
        return {"iteration": self.progress.iteration, "seconds": round(self.progress.seconds, 6)}

    def _message(self, status: Status) -> str:
        progress, config = self.progress, self.config
        of = f" of {self.total}" if self.total else ""
        at = f"at iteration {progress.iteration}{of}, after {progress.seconds:.1f} s of training"
        if status == "target" and config.until is not None:
            name, target = config.until
            value = progress.last["valid"][name]
            return f"reached {name} {value:.6g} (wanted {target:g}) {at}."
        if status == "budget":
            return f"reached its limit of {self._spent() or 'another process'} {at}."
        if status == "plateau":
            return (
                f"stopped early {at}: {progress.stale} evaluations without an improvement on "
                f"{self.task.metric} {progress.best:.6g}."
            )
        if status == "interrupted":
            return (
                f"interrupted {at}. A checkpoint is saved; resume with --resume "
                f"{self.lock.folder}, or in Python with train(..., resume=True)."
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
        """Write the task's pictures for the report; an error does not end the run."""
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
            write_json(self.lock.folder / "pictures" / f"{name}.json", one)
