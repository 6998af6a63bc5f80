"""Two small tasks for questions that need many short runs.

``digits``: scikit-learn's 8x8 digits through a three-layer tanh field. ``mnist``: the paper's
convolutional model, 16 wide; the first 8,000 images of MNIST's t10k file to train on, its last
2,000 to test on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import snopt
from snopt.lab.data import DataNotFound, load
from snopt.models import ImageClassifier
from snopt.models.fields import TanhField

BATCH = 128
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Small:
    """Images and labels, to train on and to test on."""

    train: Pair
    test: Pair

    def batches(self, seed: int) -> Iterator[Pair]:
        """Yield batches of shuffled epochs without end; a short last batch is dropped."""
        generator = torch.Generator().manual_seed(1000 + seed)
        x, y = self.train
        while True:
            order = torch.randperm(len(x), generator=generator)
            for index in order[: len(x) - len(x) % BATCH].split(BATCH):
                yield x[index], y[index]


def digits() -> Small:
    """Return pixels between 0 and 1, as vectors of 64."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = torch.from_numpy(x / 16.0).float(), torch.from_numpy(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return Small((x[:1500], y[:1500]), (x[1500:], y[1500:]))


def mnist() -> Small:
    """Return a part of MNIST, standardised; exit with a message if it is missing."""
    try:
        found = load("mnist").test.tensors
    except DataNotFound as missing:
        raise SystemExit(str(missing)) from missing
    return Small((found.x[:8000], found.y[:8000]), (found.x[-2000:], found.y[-2000:]))


def digits_model(**solver: object) -> nn.Module:
    """Return a flow of 64 dimensions and a linear read-out."""
    block = snopt.NeuralODE(TanhField(64, depth=3), rtol=1e-3, atol=1e-3, **solver)
    return nn.Sequential(block, nn.Linear(64, 10))


SMALL = {
    "digits": (digits, digits_model),
    "mnist": (mnist, lambda: ImageClassifier(1, 10, 16, rtol=1e-3, atol=1e-3)),
}


class Learner:
    """A model and its optimizers."""

    def __init__(self, model: nn.Module, optimizers: list[Any]) -> None:
        self.model, self.optimizers = model, optimizers

    def learn(self, x: Tensor, y: Tensor) -> float:
        """Take one step on a batch; return the loss."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(x), y)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())

    def accuracy(self, x: Tensor, y: Tensor) -> float:
        """Return the percentage of right answers."""
        self.model.eval()
        with torch.no_grad():
            pairs = zip(x.split(500), y.split(500), strict=True)
            right = sum(int((self.model(a).argmax(1) == b).sum()) for a, b in pairs)
        self.model.train()
        return 100.0 * right / len(y)
