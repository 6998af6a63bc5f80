"""CPU seconds of a training from its evaluations of the field, as if all ran under one load.

The seconds recorded during a training depend on what else the machine did: a second process can
double them. Evaluations do not. So the costs of an update, of an evaluation and of a refresh are
measured for all methods of a data set in the same interleaved rounds, and

    seconds(k) = k · update + E(k) · evaluation + R(k) · refresh

after k updates with E(k) evaluations in forward passes and R(k) refreshes. The cost of an
evaluation includes its share of the backward pass and is the same for all methods.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from snopt.adjoint.blocks import blocks_of
from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.item import Space
from snopt.lab.paper.iterations import Learned, Trainer
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.scales import configuration
from snopt.lab.paper.timing import interleave
from snopt.lab.paper.version import COMPILED, LIBRARY, TRAINING
from snopt.lab.recipes.build import build_task
from snopt.lab.report.read import Run
from snopt.lab.train.seeding import Order
from snopt.optim.config import Config, refresh_gap

__all__ = ["Rate", "measure_rates", "rate_job"]

ROUNDS: dict[Scale, int] = {"smoke": 2, "cpu": 7, "full": 20}
MORE = 2.0
"""The finer solves make at least this many times the evaluations."""
CODE = (
    *LIBRARY, *COMPILED, *TRAINING, "lab/optimizers",
    *(f"lab/paper/{name}.py" for name in ("iterations", "rates", "timing")),
)  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """CPU seconds of a method on a data set.

    Attributes:
        update: of an update without its evaluations.
        evaluation: of an evaluation in the forward pass, with its share of the backward pass.
        refresh: that a refresh adds to an update.
        first: the first interval between refreshes.
        every: the longest interval between refreshes.
    """

    update: float
    evaluation: float
    refresh: float = 0.0
    first: int = Config.refresh_first
    every: int = Config.refresh_every

    def along(self, run: Run) -> Any:
        """Return rows (updates, seconds) along a training.

        Updates whose evaluations were not kept are interpolated.
        """
        steps = run.records.steps.table("nfe_forward")
        updates = np.arange(1, int(steps[-1, 0]) + 1)
        evaluations = np.interp(updates, steps[:, 0], steps[:, 2]).cumsum()
        refreshes = np.zeros(len(updates))
        if self.refresh:
            refreshes[_refreshes(len(updates), self.first, self.every)] = 1.0
        seconds = self.update * updates + self.evaluation * evaluations
        return np.stack([updates, seconds + self.refresh * refreshes.cumsum()], axis=1)


def _refreshes(updates: int, first: int, every: int) -> list[int]:
    """Return the updates, from 0, that refresh.

    Example:
        >>> _refreshes(20, 5, 100), _refreshes(20, 10, 10)
        ([0, 5, 10, 15], [0, 10])
    """
    found = [0]
    while (following := found[-1] + refresh_gap(found[-1], first, every)) < updates:
        found.append(following)
    return found


def rate_job(space: Space, task: str, methods: Sequence[OptimizerName]) -> Measurement:
    """Return the measurement of the costs of methods on a data set."""
    configs = {name: configuration(task, name, space.scale) for name in methods}
    settings = configs, ROUNDS[space.scale]
    folder = space.measurement(f"rates-{task}")
    return Measurement(folder, partial(measure_rates, *settings), settings, CODE)


def rate_of(job: Measurement, config: Experiment) -> Rate | None:
    """Return the costs of a method, or None if they were not measured yet."""
    if not job.done():
        return None
    found, settings = job.read(), config.optimizer
    own = found["methods"][settings.name]
    return Rate(
        own["update"], found["evaluation"], own["refresh"],
        settings.refresh_first or Config.refresh_first,
        settings.refresh_every or Config.refresh_every,
    )  # fmt: skip


def measure_rates(configs: Mapping[str, Experiment], rounds: int) -> dict[str, Any]:
    """Measure the costs of methods on the same task, on a CPU.

    All methods make the same solves, at learning rate zero. The first one also makes them with a
    smaller tolerance, from which the cost of an evaluation follows.

    Args:
        configs: experiments by method, equal except for the optimizer.
        rounds: in each, every method makes a plain update, and SNOpt a refresh too.

    Returns:
        CPU seconds of an ``evaluation``; by method under ``methods`` those of an ``update`` without
        evaluations, and what a ``refresh`` adds.
    """
    first = next(iter(configs.values()))
    task = build_task(first)
    order = Order(len(task.train), first.train.batch_size, seed=0)
    batch = task.train.batch(order.indices(0))
    made = {name: Trainer(config, task, "cpu") for name, config in configs.items()}
    for trainer in made.values():
        trainer.iterate(batch, refresh=True)
    usual = _evaluations(next(iter(made.values())), batch)
    fine, more = _finer(first, task, batch, usual)
    runs = {name: partial(trainer.iterate, batch) for name, trainer in made.items()}
    second = {name: trainer for name, trainer in made.items() if trainer.second_order}
    runs |= {f"{n}, refresh": partial(t.iterate, batch, refresh=True) for n, t in second.items()}
    if fine is not None:
        runs["finer"] = partial(fine.iterate, batch)
    times = interleave(runs, rounds, warmup=1, clock=time.process_time)
    base = times[next(iter(made))]
    if fine is None:  # No finer solves: the whole update counts as evaluations.
        slopes = [seconds / usual for seconds in base]
    else:
        slopes = [(f - b) / (more - usual) for f, b in zip(times["finer"], base, strict=True)]
    evaluation = median(slopes)
    methods = {}
    for name in made:
        plain = times[name]
        again = times.get(f"{name}, refresh", plain)
        methods[name] = {
            "update": median(plain) - usual * evaluation,
            "refresh": median(r - p for r, p in zip(again, plain, strict=True)),
        }
    return {"evaluation": evaluation, "evaluations": [usual, more], "methods": methods}


def _finer(config: Experiment, task: Learned, batch: Any, usual: int) -> tuple[Trainer | None, int]:
    """Return a trainer whose solves make more evaluations than usual, and their number.

    None if each solve takes a single step at small tolerances, too.
    """
    solver = config.solver
    for _ in range(4):
        solver = replace(solver, rtol=0.1 * solver.rtol, atol=0.1 * solver.atol)
        trainer = Trainer(replace(config, solver=solver), task, "cpu")
        trainer.iterate(batch)
        if (found := _evaluations(trainer, batch)) >= MORE * usual:
            return trainer, found
    return None, usual


def _evaluations(trainer: Trainer, batch: Any) -> int:
    blocks = list(blocks_of(trainer.model))
    for block in blocks:
        block.totals.reset()
    trainer.iterate(batch)
    return sum(block.totals.nfe_forward for block in blocks)
