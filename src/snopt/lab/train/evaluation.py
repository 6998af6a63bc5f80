"""Metrics of a model over a set of examples."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from snopt.base.errors import SolveError
from snopt.lab.train.parallel import World
from snopt.lab.train.seeding import isolated
from snopt.lab.train.task import Examples, Metrics, Task

__all__ = ["evaluate", "to_device"]


def to_device(batch: Any, device: torch.device) -> Any:
    """Move what a batch holds: anything with ``.to``, and tuples, lists and dictionaries of such.

    Example:
        >>> to_device((torch.ones(1), None), torch.device("cpu"))
        (tensor([1.]), None)
    """
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: to_device(part, device) for name, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [to_device(part, device) for part in batch]
        named = hasattr(batch, "_fields")
        return type(batch)(*parts) if named else type(batch)(parts)
    return batch


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

    The random numbers are the same every time, and training's own are not used up. Processes
    share out the batches.

    Args:
        task: Gives the metrics of a batch.
        model: The model; it is in training mode afterwards.
        examples: What to average over.
        batch_size: Examples at a time.
        seed: The seed of the run.
        world: The processes.

    Returns:
        The means. NaN for the loss and the task's metric if a solve fails.
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
            f"metrics of task {task.name!r} are {sorted(means)}; {sorted(missing)} is missing: "
            "'loss' and the task's own metric are needed."
        )
    return means
