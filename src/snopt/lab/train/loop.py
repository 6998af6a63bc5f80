"""The training loop: open the run folder, train, and stop when asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from snopt.lab.train.checkpoint import checkpoints, latest_usable, restore, set_aside
from snopt.lab.train.examples import splits_of
from snopt.lab.train.folder import (
    FORMAT,
    FolderLock,
    RunFolderError,
    environment,
    now,
    write_json,
    writing,
)
from snopt.lab.train.parallel import join, loss_function
from snopt.lab.train.record import Record, read_records, rewind
from snopt.lab.train.run import Run, check_target
from snopt.lab.train.seeding import Order, seed_all
from snopt.lab.train.step import Meter, Update, to_device
from snopt.lab.train.task import Listener, Outcome, Parts, Progress, Status, Task, TrainConfig

__all__ = ["train"]


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
    ``log.txt``. A run that is killed at any moment can be resumed; on one process it then ends with
    the same bits as an uninterrupted run.

    Ctrl-C (and SIGTERM, SIGHUP) finishes the step, saves and returns. Under torchrun the processes
    split every batch; see :func:`join`.

    Args:
        task: What to learn.
        parts: The model and its optimizers, built again also for a resumed run.
        config: How long to train, and when to evaluate and save.
        folder: The run folder; created if it does not exist.
        describe: Extra entries for ``config.json``.
        resume: Resume the run in the folder, from the start if it has no checkpoint yet.
        overwrite: Delete the run in the folder and start anew. Without it and ``resume``, a folder
            that holds a run is refused; one whose run failed before its first checkpoint is not.
        listeners: Receive every record, in the first process.

    Returns:
        How the run ended.

    Raises:
        RunFolderError: If the folder cannot be written to, is in use, holds another run, or is
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
    check_target(task, config)
    if resume and overwrite:
        raise ValueError("resume and overwrite exclude each other; give one of them.")
    folder, splits = Path(folder), splits_of(task, config.batch_size)
    train_set = splits["train"]
    assert train_set is not None
    with ExitStack() as stack:
        device = next((p.device for p in parts.model.parameters()), torch.device("cpu"))
        world = stack.enter_context(join(device))
        order = Order(
            len(train_set), config.batch_size, config.seed, rank=world.rank, ranks=world.size
        )
        requested = stack.enter_context(stop_requests())
        lock = FolderLock(folder)
        stack.callback(lock.release)
        settings = {
            "task": task.name,
            "optimizer": "+".join(type(optimizer).__name__ for optimizer in parts.optimizers),
            "seed": config.seed,
            **(describe or {}),
            "train": asdict(config),
        }
        known = world.from_first(lambda: _open(lock, settings, resume, overwrite))
        state, complaints = None, list[str]()
        if resume:
            state, complaints = latest_usable(
                folder,
                known,
                use=lambda state: restore(state, parts, world, config.seed),
                world=world,
            )
        reached = None if state is None else Progress(**state["progress"])
        identity = known or (state or {}).get("run") or uuid.uuid4().hex
        settings |= {"run": identity, "format": FORMAT}
        machine = environment(world.device, world.size)
        world.from_first(lambda: _prepare(lock, settings, machine, reached, resume))
        record = Record(folder if world.first else None, listeners, lock.check)
        stack.callback(record.close)
        total = config.total(order.per_epoch)
        run = Run(task, splits, parts, config, lock, identity, world, total, record, requested)
        loss = loss_function(task, parts.model, world)
        update = Update(loss, parts, clip=config.clip, world=world)
        stack.callback(update.bound, None)
        try:
            _begin(run, reached, complaints)
            return run.end(_loop(run, order, update))
        except BaseException as error:
            run.fail(error)
            raise


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a request to stop.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored. A second signal has its usual
    effect, as have all signals outside the main thread, where Python allows no handlers.

    Yields:
        A list that receives the name of the signal.

    Example:
        >>> with stop_requests() as requested:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     requested
        ['SIGTERM']
    """
    requested: list[str] = []
    usual: dict[signal.Signals, Any] = {}

    def restore_handlers() -> None:
        for which, handler in usual.items():
            signal.signal(which, handler)
        usual.clear()

    def handle(number: int, frame: FrameType | None) -> None:
        requested.append(signal.Signals(number).name)
        restore_handlers()

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            which = getattr(signal, name, None)  # Windows has no SIGHUP.
            if which is not None and signal.getsignal(which) is not signal.SIG_IGN:
                usual[which] = signal.signal(which, handle)
    try:
        yield requested
    finally:
        restore_handlers()


# ------------------------------------------------------------------------- the run folder

#: Settings that decide the order of the data, and so must not change when a run is resumed.
FIXED = ("seed", "batch_size")


def _open(
    lock: FolderLock, settings: Mapping[str, Any], resume: bool, overwrite: bool
) -> str | None:
    """Lock a folder and check that the run may use it; nothing else in the folder changes yet.

    Returns:
        The identity of the run to resume; None for a new run, or if it is not known.
    """
    folder = lock.folder
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock.acquire()
    before = _config(folder)
    if resume:
        _check_order_of_data(folder, before or {}, settings)
        identity = (before or {}).get("run")
        return identity if isinstance(identity, str) else None
    if not overwrite and _holds_run(folder, before):
        raise RunFolderError(
            f"{folder} already holds a run; resume it (resume=True, --resume), delete it "
            "(overwrite=True, --overwrite), or choose another folder."
        )
    return None


def _config(folder: Path) -> dict[str, Any] | None:
    """Read ``config.json``; None if there is none, {} if it is damaged or not one of ours."""
    path = folder / "config.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    ours = isinstance(content, dict) and isinstance(content.get("train"), dict)
    return content if ours else {}


def _holds_run(folder: Path, config: Mapping[str, Any] | None) -> bool:
    """Tell whether a folder holds more than a run that failed before its first checkpoint."""
    if config == {} or checkpoints(folder):
        return True
    ends = [record for record in read_records(folder) if record["kind"] == "end"]
    return bool(ends) and ends[-1].get("status") != "failed"


def _check_order_of_data(
    folder: Path, before: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    if before.get("format", FORMAT) != FORMAT:
        raise RunFolderError(
            f"{folder} has format {before['format']}, and this version of snopt reads format "
            f"{FORMAT}; resume the run with the version that started it."
        )
    train = before.get("train", {})
    for name in FIXED:
        if name in train and train[name] != settings["train"][name]:
            raise RunFolderError(
                f"{name} is {settings['train'][name]}, but the run in {folder} was started with "
                f"{train[name]}; resume it with that, or choose another folder."
            )


def _prepare(
    lock: FolderLock,
    settings: Mapping[str, Any],
    machine: Mapping[str, Any],
    progress: Progress | None,
    resume: bool,
) -> None:
    """Remove the earlier run, or what the resumed one will write again; write the JSON files."""
    folder = lock.folder
    lock.sign(settings["run"])
    if resume:
        set_aside(folder, after=-1 if progress is None else progress.iteration)
        rewind(folder, progress)
    else:
        with writing(folder):
            for name in ("checkpoints", "pictures"):
                if (folder / name).exists():
                    shutil.rmtree(folder / name)
            for name in ("metrics.jsonl", "log.txt", "environment.json", "config.json"):
                (folder / name).unlink(missing_ok=True)
    write_json(folder / "config.json", settings)
    if not (folder / "environment.json").exists():
        write_json(folder / "environment.json", machine)


# ------------------------------------------------------------------------------- the loop


def _begin(run: Run, reached: Progress | None, complaints: Sequence[str]) -> None:
    """Take over the restored progress, or seed a new run, and log which."""
    run.record.tell(lambda listener: listener.on_start(run.total, run.config))
    if reached is None:
        seed_all(run.config.seed, "training", run.world.rank)
    else:
        run.progress, run.saved = reached, reached.iteration
    run.record.add("start", time=now(), resumed_from=run.saved, format=FORMAT)
    said = "started" if reached is None else f"resumed from iteration {reached.iteration}"
    where = f"on {socket.gethostname()}, process {os.getpid()}, torch {torch.__version__}"
    run.record.log(f"{said} {where}")
    for complaint in complaints:
        run.record.log(complaint)
        warnings.warn(complaint, RuntimeWarning, stacklevel=3)


def _loop(run: Run, order: Order, update: Update) -> Status:
    """Train until :meth:`Run.verdict` ends the run."""
    parts, config, world, progress = run.parts, run.config, run.world, run.progress
    examples = run.splits["train"]
    assert examples is not None
    evaluate_every = config.evaluate_every or order.per_epoch
    save_every = config.checkpoint_every or evaluate_every
    meter = Meter(parts.model, world.device)
    rate = parts.optimizers[0].param_groups[0]
    parts.model.train()
    if progress.evaluated is None:
        run.evaluate("valid")
    update.bound(progress.most_evaluations())
    while (status := run.verdict()) is None:
        meter.reset()
        begun, begun_cpu = time.perf_counter(), time.process_time()
        batch = to_device(examples.batch(order.indices(progress.iteration)), world.device)
        loss, skipped = update(batch)
        lr = float(rate["lr"])
        for scheduler in parts.schedulers:
            scheduler.step()
        evaluation_due = (progress.iteration + 1) % evaluate_every == 0
        if evaluation_due and world.device.type == "cuda":
            torch.cuda.synchronize(world.device)  # Queued work is training, not evaluation.
        spent, spent_cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
        progress.advance(spent, skipped, cpu_seconds=spent_cpu, cost=meter.evaluations)
        update.bound(progress.most_evaluations())
        if progress.iteration % config.record_every == 0:
            run.record.add(
                "step",
                iteration=progress.iteration,
                epoch=order.epoch(progress.iteration - 1),
                seconds=round(progress.seconds, 6),
                cpu_seconds=round(progress.cpu_seconds, 6),
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
