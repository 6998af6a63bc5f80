"""The training loop."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from snopt.lab.train.evaluation import to_device
from snopt.lab.train.folder import environment, now
from snopt.lab.train.interrupt import Interruption
from snopt.lab.train.lock import FolderLock
from snopt.lab.train.measure import Meter
from snopt.lab.train.opening import look, prepare, settings_of
from snopt.lab.train.order import Order
from snopt.lab.train.parallel import join, loss_function
from snopt.lab.train.record import Record
from snopt.lab.train.run import Run, check_target
from snopt.lab.train.seeding import seed_all
from snopt.lab.train.state import Progress, restore
from snopt.lab.train.step import Update
from snopt.lab.train.task import Listener, Outcome, Parts, Status, Task, TrainConfig

__all__ = ["train"]


def train(
    task: Task,
    parts: Parts,
    config: TrainConfig,
    folder: str | Path,
    *,
    describe: Mapping[str, Any] | None = None,
    resume: bool = False,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train, and keep a record of it in a folder.

    The folder holds ``config.json``, ``environment.json``, ``metrics.jsonl``, ``checkpoints`` and
    ``log.txt``. A run that was killed at any moment can be resumed, and goes on as if it had not
    been: on one process it ends with the same bits.

    Ctrl-C (and SIGTERM) lets the step finish, saves and returns. Under torchrun the processes
    share out every batch; see :func:`join`.

    Args:
        task: What is to be learnt.
        parts: The model and what trains it, made anew also for a resumed run.
        config: How long, and what happens when.
        folder: The run folder; made if it does not exist.
        describe: Goes to ``config.json`` as it is.
        resume: Go on with the run in the folder, from the beginning if it has no checkpoint yet.
            If False, a folder that holds a run is refused.
        listeners: Told of progress, in the first process.

    Returns:
        How the run ended.

    Raises:
        RunFolderError: If the folder cannot be written to, is in use, or holds another run.

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
    check_target(task, config)
    folder = Path(folder)
    with ExitStack() as stack:
        world = stack.enter_context(join(_device_of(parts)))
        order = Order(
            len(task.train), config.batch_size, config.seed, rank=world.rank, ranks=world.size
        )
        interruption = stack.enter_context(Interruption())
        lock = FolderLock(folder)
        stack.callback(lock.release)
        settings = settings_of(task, parts, config, describe or {})
        state, complaints = world.from_first(lambda: look(lock, settings, resume))
        reached = None if state is None else restore(state, parts, world, config.seed)
        computed_with = environment(world.device, world.size)
        world.from_first(lambda: prepare(folder, settings, computed_with, reached))
        record = Record(folder if world.first else None, listeners)
        stack.callback(record.close)
        total = config.total(order.per_epoch)
        run = Run(task, parts, config, folder, world, total, record, interruption)
        try:
            _begin(run, reached, complaints)
            return run.end(_loop(run, order))
        except BaseException as error:
            run.fail(error)
            raise


def _begin(run: Run, reached: Progress | None, complaints: Sequence[str]) -> None:
    """Take up the restored run, or seed a new one, and say which."""
    run.record.tell(lambda listener: listener.on_start(run.total, run.config))
    if reached is None:
        seed_all(run.config.seed, "training", run.world.rank)
    else:
        run.progress, run.saved = reached, reached.iteration
    run.record.add("start", time=now(), resumed_from=run.saved)
    said = "started" if reached is None else f"resumed from iteration {reached.iteration}"
    where = f"on {socket.gethostname()}, process {os.getpid()}, torch {torch.__version__}"
    run.record.log(f"{said} {where}")
    for complaint in complaints:
        run.record.log(complaint)
        warnings.warn(complaint, RuntimeWarning, stacklevel=3)


def _loop(run: Run, order: Order) -> Status:
    """Train until something says that it is enough."""
    task, parts, config, world, progress = run.task, run.parts, run.config, run.world, run.progress
    evaluate_every = config.evaluate_every or order.per_epoch
    save_every = config.checkpoint_every or evaluate_every
    update = Update(loss_function(task, parts.model, world), parts, clip=config.clip, world=world)
    meter = Meter(parts.model, world.device)
    rate = parts.optimizers[0].param_groups[0]
    parts.model.train()
    if progress.evaluated is None:
        run.evaluate("valid")
    while (status := run.verdict()) is None:
        meter.reset()
        begun = time.perf_counter()
        batch = to_device(task.train.batch(order.indices(progress.iteration)), world.device)
        loss, skipped = update(batch)
        lr = float(rate["lr"])
        for scheduler in parts.schedulers:
            scheduler.step()
        evaluation_due = (progress.iteration + 1) % evaluate_every == 0
        if evaluation_due and world.device.type == "cuda":
            torch.cuda.synchronize(world.device)  # What was queued is training, not evaluation.
        progress.advance(time.perf_counter() - begun, skipped)
        if progress.iteration % config.record_every == 0:
            run.record.add(
                "step",
                iteration=progress.iteration,
                epoch=order.epoch(progress.iteration - 1),
                seconds=round(progress.seconds, 6),
                loss=loss,
                lr=lr,
                **meter.read(),
                **({} if skipped is None else {"skipped": skipped}),
            )
        if evaluation_due:
            run.evaluate("valid")
        if progress.iteration % save_every == 0:
            run.save()
    return status


def _device_of(parts: Parts) -> torch.device:
    return next((p.device for p in parts.model.parameters()), torch.device("cpu"))
