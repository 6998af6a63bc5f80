"""The cost of one iteration: seconds of several methods side by side, and memory.

On a CPU seconds are CPU seconds of this process, summed over its threads; on a GPU wall seconds.
All methods run at learning rate zero: the parameters stay the same, so all methods do the same
solves.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch

from snopt.lab.config import Experiment
from snopt.lab.data import Batch, Dataset
from snopt.lab.paper.peak import in_fresh_process, rise
from snopt.lab.paper.timing import Times, interleave, seconds_of, set_refresh
from snopt.lab.recipes.build import build_parts, build_task
from snopt.lab.recipes.run import rotated
from snopt.lab.recipes.tasks import Classification, Density
from snopt.lab.train.folder import environment
from snopt.lab.train.seeding import Order
from snopt.lab.train.step import Update
from snopt.optim import SNOpt
from snopt.optim.config import Config

Learned: TypeAlias = Classification | Density


class Trainer:
    """A method at learning rate zero.

    Args:
        config: the experiment.
        task: the task with the loss.
        device: device of the model.
    """

    def __init__(self, config: Experiment, task: Learned, device: str) -> None:
        self.device = device
        parts = build_parts(config, task.train.spec, device)
        self.second_order = [o for o in parts.optimizers if isinstance(o, SNOpt)]
        self.stepping = 0.0
        for optimizer in parts.optimizers:
            optimizer.register_step_pre_hook(lambda *_: self._step(-1))
            optimizer.register_step_post_hook(lambda *_: self._step(1))
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        self.model = parts.model
        self.update = Update(lambda batch: task.loss(parts.model, batch), parts)

    def iterate(self, batch: Batch, *, refresh: bool = False) -> None:
        """Run one iteration.

        Args:
            batch: the batch.
            refresh: whether SNOpt refreshes its factors.
        """
        for optimizer in self.second_order:
            set_refresh(optimizer, refresh)
        _, reason = self.update(batch)
        if reason is not None:
            raise RuntimeError(f"this iteration cannot be measured: {reason}")

    def seconds(self, batch: Batch, *, refresh: bool = False) -> tuple[float, float]:
        """Time one iteration, and the optimizer's step in it."""
        self.stepping = 0.0
        whole = seconds_of(lambda: self.iterate(batch, refresh=refresh), self._now)
        return whole, self.stepping

    def _step(self, sign: int) -> None:
        self.stepping += sign * self._now()

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()


def measure_iterations(configs: Mapping[str, Experiment], rounds: int) -> dict[str, Any]:
    """Measure several methods on the same task, on a GPU if there is one.

    Args:
        configs: experiments by method, equal except for the optimizer.
        rounds: in each, every method runs a plain iteration, and SNOpt a refresh too.

    Returns:
        By method ``seconds``, ``megabytes`` and ``refresh_every``; and the ``environment``.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    first = next(iter(configs.values()))
    task = build_task(first)
    order = Order(len(task.train), first.train.batch_size, seed=0)
    batches = [task.train.batch(order.indices(k)) for k in range(rounds)]
    seconds = time_rounds(configs, task, [batch.to(device) for batch in batches], device)
    few = Dataset(batches[0], task.train.spec)
    small = type(task)(task.name, few, few, few)
    return {
        "seconds": seconds,
        "megabytes": {
            name: round(in_fresh_process(peak_of, config, small), 1)
            for name, config in configs.items()
        },
        "refresh_every": {
            name: config.optimizer.refresh_every or Config.refresh_every
            for name, config in configs.items()
        },
        "environment": environment(torch.device(device), 1),
    }


def measure_clocks(configs: Mapping[str, Experiment], rounds: int) -> dict[str, Any]:
    """Time ten iterations, one with a refresh, by CPU and by wall seconds in the same rounds.

    Args:
        configs: experiments by method, equal except for the optimizer.
        rounds: number of rounds.

    Returns:
        Seconds by method under ``cpu`` and ``wall``, and the load average of the machine.
    """
    task = build_task(next(iter(configs.values())))
    batch = task.train.batch(torch.arange(min(128, len(task.train))))
    trainers = {name: Trainer(config, task, "cpu") for name, config in configs.items()}
    wall: Times = {name: [] for name in trainers}
    for trainer in trainers.values():
        trainer.iterate(batch, refresh=True)

    def iterate(name: str) -> None:
        start = time.perf_counter()
        for number in range(10):
            trainers[name].iterate(batch, refresh=number == 0)
        wall[name].append(time.perf_counter() - start)

    runs = {name: partial(iterate, name) for name in trainers}
    cpu = interleave(runs, rounds, clock=time.process_time)
    return {"cpu": cpu, "wall": wall, "load": os.getloadavg()[0]}


def time_rounds(
    configs: Mapping[str, Experiment], task: Learned, batches: Sequence[Batch], device: str
) -> dict[str, Times]:
    """Time methods in turn, one round per batch, each round in another order.

    Returns:
        By method ``plain`` iterations, and for SNOpt ``refresh`` iterations.
    """
    trainers = {name: Trainer(config, task, device) for name, config in configs.items()}
    for trainer in trainers.values():
        # Preconditioning needs a first refresh.
        trainer.iterate(batches[0], refresh=True)
        trainer.iterate(batches[0])
    found: dict[str, Times] = {name: {"plain": []} for name in trainers}
    for k, batch in enumerate(batches):
        order = rotated(list(trainers), k)
        plain = {name: trainers[name].seconds(batch) for name in order}
        # Without a refresh all methods make the same forward and backward pass.
        passes = statistics.median(whole - step for whole, step in plain.values())
        for name in order:
            whole, step = plain[name]
            found[name]["plain"].append(passes + step)
            if trainers[name].second_order:
                more = trainers[name].seconds(batch, refresh=True)[0] - whole
                found[name].setdefault("refresh", []).append(passes + step + more)
    return found


def peak_of(config: Experiment, task: Learned) -> float:
    """Return the peak megabytes of an iteration: model, optimizer, solves and SNOpt's refresh.

    Args:
        config: the experiment.
        task: a task of one batch.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = task.train.tensors.to(device)
    # What torch loads on first use does not belong to the method.
    Trainer(config, task, device).iterate(batch.slice(0, 2), refresh=True)
    gc.collect()
    made: list[Trainer] = []

    def work() -> None:
        if not made:
            made.append(Trainer(config, task, device))
        made[0].iterate(batch, refresh=True)
        made[0].iterate(batch)

    return rise(work, device)
