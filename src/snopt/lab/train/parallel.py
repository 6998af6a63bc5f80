"""Training on several processes under torchrun, and stop signals."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from snopt.base.distributed import joined
from snopt.lab.train.task import Parts, Task
from snopt.optim import SNOpt

T = TypeVar("T")

SHUTDOWN_SECONDS = 0.2
"""Seconds that a process waits after its group is destroyed. Gloo's threads outlive the group and
may hold tensors of the last messages. Releasing one during interpreter shutdown aborts the process,
and torchrun then reports a finished run as failed."""


@dataclass(frozen=True)
class World:
    """The processes that train together, and the rank of this one.

    Attributes:
        rank: number of this process, from 0; the first process writes the run folder.
        size: number of processes.
        device: device of this process: build the model there.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this process writes the run folder."""
        return self.rank == 0

    def mean(self, value: float) -> float:
        """Average a number over the processes; not finite if it is not finite on one of them."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        distributed.all_reduce(total)
        return float(total) / self.size

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return self.mean(float(flag)) > 0

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, on every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def from_first(self, make: Callable[[], T]) -> T:
        """Call a function on the first process; return its result, or raise its error, on all.

        Only the first process needs access to the run folder.
        """
        if self.size == 1:
            return make()
        box: list[Any] = [None, None]
        if self.first:
            try:
                box[0] = make()
            # Any error must reach the other processes, which wait for the result.
            except Exception as error:  # noqa: BLE001
                box[1] = error
        distributed.broadcast_object_list(box, src=0, device=self.device)
        if box[1] is not None:
            raise box[1]
        made: T = box[0]
        return made


ALONE = World()
"""The world of a single process on the CPU."""


@contextmanager
def join(device: str | torch.device | None = None) -> Iterator[World]:
    """Join the processes that torchrun started; without torchrun, the world is one process.

    Enter the context before the model is built, and build the model on ``world.device``.
    :func:`train` reuses the process group.

    Args:
        device: where to compute; default a GPU if there is one. Under torchrun ``"cuda"`` means
            the GPU of this process's ``LOCAL_RANK``.

    Yields:
        the world.

    Example:
        >>> with join() as world:
        ...     world.rank, world.size
        (0, 1)
    """
    started_by_torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    already = joined()
    place = _device(device, started_by_torchrun or already)
    if not (already or started_by_torchrun):
        yield World(device=place)
        return
    if not already:
        if place.type == "cuda":
            torch.cuda.set_device(place)
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo")
    try:
        yield World(distributed.get_rank(), distributed.get_world_size(), place)
    finally:
        if not already:
            distributed.destroy_process_group()
            time.sleep(SHUTDOWN_SECONDS)


def _device(wanted: str | torch.device | None, several: bool) -> torch.device:
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    place = torch.device(wanted)
    if several and str(place) == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return place


class _Loss(nn.Module):
    """A task's loss as a module, for DistributedDataParallel to average all gradients."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Any) -> Tensor:
        return self.task.loss(self.model, batch)


def loss_function(task: Task, model: nn.Module, world: World) -> Callable[[Any], Tensor]:
    """Return the loss of a batch as a function whose gradients are averaged over the processes."""
    if world.size == 1:
        return lambda batch: task.loss(model, batch)
    wrapped: Callable[[Any], Tensor] = DistributedDataParallel(_Loss(task, model))
    return wrapped


def traffic(parts: Parts, iterations: int) -> dict[str, int]:
    """Count the bytes that each process sends to the others in a run.

    Gradients are exchanged in every iteration; Kronecker factors and their eigenvectors on
    refresh iterations only. The traffic depends on the collective: a ring takes about twice the
    payload.

    Returns:
        bytes of ``gradients`` and of ``factors``.
    """
    trained = [p for p in parts.model.parameters() if p.requires_grad]
    gradients = iterations * sum(p.numel() * p.element_size() for p in trained)
    factors = sum(
        optimizer.counts.refreshes * _refresh_bytes(optimizer)
        for optimizer in parts.optimizers
        if isinstance(optimizer, SNOpt)
    )
    return {"gradients": gradients, "factors": factors}


def _refresh_bytes(optimizer: SNOpt) -> int:
    """Return the payload of one refresh: all factors are averaged, all eigenbases broadcast."""
    total, item = 0, 0
    for factors in optimizer.factors.values():
        for block in (block for mode in factors.modes for block in mode):
            groups, size = block.shape[0], block.shape[-1]
            # The factor, its eigenvalues and eigenvectors, and whether the decomposition succeeded.
            numbers = groups * size * size + groups * size * (size + 1) + 1
            item = block.element_size()
            total += numbers * item
        total += 2 * item  # ranks and duration of the layer
    return total + 3 * item  # ranks, batches and examples of all


@contextmanager
def stop_requests() -> Iterator[list[str]]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a request to stop.

    An ignored signal (SIGHUP under nohup) stays ignored. A second signal has its usual effect.
    Outside the main thread, where Python allows no handlers, all signals have their usual effect.

    Yields:
        a list that receives the name of the signal.

    Example:
        >>> with stop_requests() as requested:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     requested
        ['SIGTERM']
    """
    requested: list[str] = []
    usual: dict[signal.Signals, Any] = {}

    def restore_handlers() -> None:
        while usual:
            signal.signal(*usual.popitem())

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
