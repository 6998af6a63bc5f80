"""Random numbers and the order of the data, both determined by the seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def subseed(seed: int, *purpose: object) -> int:
    """Derive an independent seed below 2³² for one purpose, for example ``"order", epoch``.

    Example:
        >>> subseed(0, "order", 1) == subseed(0, "order", 1) != subseed(0, "order", 2)
        True
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def seed_all(seed: int, *purpose: object) -> None:
    """Seed the global generators of torch (all devices), NumPy and Python.

    Example:
        >>> seed_all(0, "weights")
        >>> first = torch.rand(1)
        >>> seed_all(0, "weights")
        >>> bool(first == torch.rand(1))
        True
    """
    number = subseed(seed, *purpose)
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def rng_state() -> dict[str, Any]:
    """Return the state of the global generators, in a form that ``weights_only=True`` can load."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the global generators from :func:`rng_state`.

    Example:
        >>> state = rng_state()
        >>> first = torch.rand(1), random.random(), np.random.rand()
        >>> set_rng_state(state)
        >>> first == (torch.rand(1), random.random(), np.random.rand())
        True
    """
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.device_count() >= len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def isolated(seed: int, *purpose: object) -> Iterator[None]:
    """Seed the global generators inside the context, and restore them afterwards.

    Evaluation runs in this context: the same weights give the same metrics, and the number of
    evaluations does not change the training.

    Example:
        >>> before = torch.get_rng_state()
        >>> with isolated(0, "evaluation"):
        ...     _ = torch.rand(3)
        >>> bool((torch.get_rng_state() == before).all())
        True
    """
    state = rng_state()
    seed_all(seed, *purpose)
    try:
        yield
    finally:
        set_rng_state(state)


class Order:
    """The order of the training examples.

    Every epoch is a permutation drawn from ``(seed, epoch)`` and split into batches of equal size.
    A resumed run needs only its iteration, and runs with the same seed see the same batches for any
    optimizer. The last, incomplete batch of an epoch is dropped.

    With several processes, each takes an equal part of every batch; together they see the batches
    of one process.

    Example:
        >>> order = Order(examples=10, batch_size=4, seed=0)
        >>> order.per_epoch, order.epoch(iteration=2)
        (2, 1)
        >>> whole = order.indices(iteration=0)
        >>> parts = [Order(10, 4, seed=0, rank=r, ranks=2).indices(0) for r in range(2)]
        >>> torch.equal(torch.cat(parts), whole)
        True
    """

    def __init__(
        self, examples: int, batch_size: int, seed: int, *, rank: int = 0, ranks: int = 1
    ) -> None:
        if examples == 0:
            raise ValueError("there are no training examples: the task's `train` is empty.")
        if batch_size % ranks:
            raise ValueError(
                f"batch_size = {batch_size} cannot be split equally among {ranks} processes; "
                f"choose a multiple of {ranks}."
            )
        if examples < ranks:
            raise ValueError(f"{examples} training examples are too few for {ranks} processes.")
        self.examples, self.seed = examples, seed
        self.batch_size = min(batch_size, examples - examples % ranks)
        self.per_epoch = examples // self.batch_size
        self.part = self.batch_size // ranks
        self.offset = rank * self.part
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.long)

    def epoch(self, iteration: int) -> int:
        """Return the epoch of an iteration; both count from 0."""
        return iteration // self.per_epoch

    def indices(self, iteration: int) -> Tensor:
        """Return this process's part of a batch; iterations count from 0."""
        epoch, position = divmod(iteration, self.per_epoch)
        if epoch != self._epoch:
            shuffle = torch.Generator().manual_seed(subseed(self.seed, "order", epoch))
            self._permutation = torch.randperm(self.examples, generator=shuffle)
            self._epoch = epoch
        start = position * self.batch_size + self.offset
        return self._permutation[start : start + self.part]
