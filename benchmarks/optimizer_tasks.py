"""Two small learning tasks on which optimizers are compared.

``mnist``: the first 8,000 images of MNIST's t10k file to train on, its last 2,000 to test on; the
paper's convolutional model (three convolutions, an ODE block of two, a linear read-out), batch
128, tolerance 1e-3. ``digits``: scikit-learn's 8x8 digits through a three-layer tanh field.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import snopt

BATCH = 128


class ConvField(nn.Module):
    """conv3x3 -> ReLU -> conv3x3, time entering each as one more channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width + 1, width, 3, padding=1)
        self.second = nn.Conv2d(width + 1, width, 3, padding=1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        time = t.expand(x.shape[0], 1, *x.shape[2:])
        x = torch.relu(self.first(torch.cat([x, time], 1)))
        return self.second(torch.cat([x, time], 1))


class TanhField(nn.Module):
    """Three linear layers with tanh between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


def image_model(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, 1),
        nn.ReLU(),
        nn.Conv2d(width, width, 4, 2),
        nn.ReLU(),
        nn.Conv2d(width, width, 4, 2),
        snopt.NeuralODE(ConvField(width), 1.0, rtol=1e-3, atol=1e-3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def digits_model(width: int = 64) -> nn.Module:
    block = snopt.NeuralODE(TanhField(width), 1.0, rtol=1e-3, atol=1e-3)
    return nn.Sequential(block, nn.Linear(width, 10))


@dataclass(frozen=True)
class Task:
    """Data, and the iterations at which a run is looked at; it ends at the last of them."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    checkpoints: tuple[int, ...]
    tuning: tuple[int, ...]
    """Checkpoints of runs that choose a rate."""

    def practice(self) -> Task:
        """The same without the test set: the last eighth of the training set stands for it."""
        end = len(self.train[0]) * 7 // 8
        train, held_out = (
            tuple(part[where] for part in self.train) for where in (slice(end), slice(end, None))
        )
        return replace(self, train=train, test=held_out, checkpoints=self.tuning)

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of shuffled epochs, without end; a short last batch is left out."""
        generator = torch.Generator().manual_seed(1000 + seed)
        inputs, labels = self.train
        while True:
            order = torch.randperm(len(inputs), generator=generator)
            for i in range(0, len(inputs) - BATCH + 1, BATCH):
                index = order[i : i + BATCH]
                yield inputs[index], labels[index]


def _idx(path: Path, skip: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress(path.read_bytes())[skip:], dtype=np.uint8)


def mnist() -> Task:
    root = os.environ.get("SNOPT_DATA")
    if root is None:
        raise SystemExit("set SNOPT_DATA to the folder that holds mnist/t10k-*.gz")
    folder = Path(root) / "mnist"
    images = _idx(folder / "t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    labels = torch.from_numpy(_idx(folder / "t10k-labels-idx1-ubyte.gz", 8).astype(np.int64))
    x = (torch.from_numpy(images.astype(np.float32)) / 255 - 0.1307) / 0.3081
    train, test = (x[:8000], labels[:8000]), (x[-2000:], labels[-2000:])
    return Task(train, test, checkpoints=(20, 40, 62, 124), tuning=(20, 40, 62))


def digits() -> Task:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = torch.from_numpy(x / 16.0).float(), torch.from_numpy(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    train, test = (x[:1500], y[:1500]), (x[1500:], y[1500:])
    return Task(train, test, checkpoints=(25, 50, 200), tuning=(25, 50, 200))


TASKS = {"mnist": (mnist, image_model), "digits": (digits, digits_model)}
