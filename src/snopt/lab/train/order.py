"""Which examples an iteration sees: a function of the seed and the iteration, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from snopt.lab.train.seeding import generator

__all__ = ["Order"]


class Order:
    """The order of the training examples.

    Every epoch is a permutation made from ``(seed, epoch)`` and cut into batches of one size, so
    that a resumed run needs to know nothing but its iteration, and runs with the same seed see
    the same batches whatever their optimizer. What does not fill a batch is left out of that
    epoch.

    With several processes each takes its own, equal part of every batch; together they see what
    one process would.

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
        """Plan the epochs.

        Args:
            examples: How many there are.
            batch_size: Examples of an iteration, all processes together.
            seed: The seed of the run.
            rank: Which process this is.
            ranks: How many processes there are.
        """
        if examples == 0:
            raise ValueError("there are no training examples; the task's `train` is empty.")
        if batch_size % ranks:
            raise ValueError(
                f"batch_size = {batch_size} cannot be shared equally by {ranks} processes; choose "
                f"a multiple of {ranks}."
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
        """Return the epoch that an iteration belongs to; both count from 0."""
        return iteration // self.per_epoch

    def indices(self, iteration: int) -> Tensor:
        """Return this process's part of a batch; iterations count from 0."""
        epoch, position = divmod(iteration, self.per_epoch)
        if epoch != self._epoch:
            shuffle = generator(self.seed, "order", epoch)
            self._permutation = torch.randperm(self.examples, generator=shuffle)
            self._epoch = epoch
        start = position * self.batch_size + self.offset
        return self._permutation[start : start + self.part]
