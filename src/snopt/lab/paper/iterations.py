"""What one iteration of a method costs: seconds side by side, and memory in a fresh process.

On a CPU seconds are those that its cores worked for this process, added up; on a GPU those that
passed. All methods work at learning rate zero, so that they do the same solves: the parameters stay
where they are, and with them the number of evaluations.
"""

from __future__ import annotations

import gc
import pickle
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from snopt.lab.config import Experiment
from snopt.lab.data import Batch, Dataset
from snopt.lab.paper.peak import in_fresh_process, rise
from snopt.lab.recipes.build import build_parts, build_task
from snopt.lab.recipes.run import rotated
from snopt.lab.recipes.tasks import Classification, Density
from snopt.lab.train.folder import environment
from snopt.lab.train.seeding import Order
from snopt.lab.train.step import Update
from snopt.optim import SNOpt

__all__ = ["Trainer", "amortised", "measure_iterations", "peak_of", "typical_ratio"]

Seconds: TypeAlias = dict[str, list[float]]
"""``plain`` iterations, and ``refresh`` iterations of SNOpt: one number a round."""

NEVER = 10**9
CHILD = "snopt.lab.paper.peak_child"


class Trainer:
    """A method at work, at learning rate zero.

    Args:
        config: the experiment.
        task: whose loss it minimises.
        device: where to compute.
    """

    def __init__(self, config: Experiment, task: Classification | Density, device: str) -> None:
        self.device = device
        parts = build_parts(config, task.train.spec, device)
        self.second_order = [o for o in parts.optimizers if isinstance(o, SNOpt)]
        self.stepping = 0.0
        for optimizer in parts.optimizers:
            optimizer.register_step_pre_hook(lambda *_: self._step(-1))
            optimizer.register_step_post_hook(lambda *_: self._step(1))
            for group in optimizer.param_groups:
                group["lr"] = 0.0
        self.update = Update(lambda batch: task.loss(parts.model, batch), parts)

    def iterate(self, batch: Batch, *, refresh: bool = False) -> None:
        """Make one iteration.

        Args:
            batch: what the loss is of.
            refresh: whether SNOpt renews its factors in it.
        """
        for optimizer in self.second_order:
            done = optimizer.counts.iterations
            optimizer.next_refresh = done if refresh else NEVER
            optimizer.recorder.arm(seed=done) if refresh else optimizer.recorder.disarm()
        _, reason = self.update(batch)
        if reason is not None:
            raise RuntimeError(f"no iteration to measure: {reason}")

    def seconds(self, batch: Batch, *, refresh: bool = False) -> tuple[float, float]:
        """Time one iteration, and the optimizer's step in it."""
        gc.collect()
        gc.disable()
        try:
            self.stepping, start = 0.0, self._now()
            self.iterate(batch, refresh=refresh)
            return self._now() - start, self.stepping
        finally:
            gc.enable()

    def _step(self, sign: int) -> None:
        self.stepping += sign * self._now()

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        # The processor's seconds: what else the machine is at does not count.
        return time.process_time()


def measure_iterations(configs: Mapping[str, Experiment], rounds: int) -> dict[str, Any]:
    """Measure several methods on the same task, on a GPU if there is one.

    Args:
        configs: one experiment a method, alike but for the optimizer.
        rounds: in each, every method makes a plain iteration, and SNOpt a refresh too.

    Returns:
        By method ``seconds``, ``megabytes`` and ``refresh_every``; and the ``environment``.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    first = next(iter(configs.values()))
    task = build_task(first)
    order = Order(len(task.train), first.train.batch_size, seed=0)
    batches = [task.train.batch(order.indices(k)) for k in range(rounds)]
    seconds = time_rounds(configs, task, [batch.to(device) for batch in batches], device)
    return {
        "seconds": seconds,
        "megabytes": {name: _peak(config, task, batches[0]) for name, config in configs.items()},
        "refresh_every": {name: c.optimizer.refresh_every for name, c in configs.items()},
        "environment": environment(torch.device(device), 1),
    }


def time_rounds(
    configs: Mapping[str, Experiment],
    task: Classification | Density,
    batches: Sequence[Batch],
    device: str,
) -> dict[str, Seconds]:
    """Time methods in turn, a round a batch, each round beginning with another method.

    Whatever slows the machine down for a while so hits all methods alike.
    """
    trainers = {name: Trainer(config, task, device) for name, config in configs.items()}
    for trainer in trainers.values():
        # Without a refresh there is nothing to precondition with.
        trainer.iterate(batches[0], refresh=True)
        trainer.iterate(batches[0])
    found: dict[str, Seconds] = {name: {"plain": []} for name in trainers}
    names = list(trainers)
    for k, batch in enumerate(batches):
        order = rotated(names, k)
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


def amortised(seconds: Seconds, refresh_every: int) -> list[float]:
    """Return seconds of an iteration when one of so many is a refresh, round by round.

    Example:
        >>> amortised({"plain": [1.0], "refresh": [3.0]}, refresh_every=100)
        [1.02]
        >>> amortised({"plain": [1.0]}, refresh_every=100)
        [1.0]
    """
    share = 1 / refresh_every
    refresh = seconds.get("refresh", seconds["plain"])
    return [(1 - share) * p + share * r for p, r in zip(seconds["plain"], refresh, strict=True)]


def typical_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of ratios that were each taken within a round.

    Example:
        >>> typical_ratio([1.0, 4.0, 9.0], [1.0, 2.0, 3.0])
        2.0
    """
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _peak(config: Experiment, task: Classification | Density, batch: Batch) -> float:
    """Have a fresh process measure the memory of an iteration; it is handed the batch alone."""
    few = Dataset(batch, task.train.spec)
    small = type(task)(task.name, few, few, few)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.pickle"
        path.write_bytes(pickle.dumps((config, small)))
        return round(in_fresh_process(CHILD, str(path)), 1)


def peak_of(path: Path) -> float:
    """Measure what an iteration takes: model, optimizer, solves and, for SNOpt, a refresh.

    Args:
        path: a pickled pair of an experiment and a task of one batch.

    Returns:
        Megabytes.
    """
    config, task = pickle.loads(path.read_bytes())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = task.train.tensors.to(device)
    # What torch loads on first use is not the method's.
    Trainer(config, task, device).iterate(batch.slice(0, 2), refresh=True)
    gc.collect()
    made: list[Trainer] = []

    def work() -> None:
        if not made:
            made.append(Trainer(config, task, device))
        made[0].iterate(batch, refresh=True)
        made[0].iterate(batch)

    return rise(work, device)
