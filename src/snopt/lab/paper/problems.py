"""Small problems of which every derivative can be computed exactly, and the paper's own field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.models.fields import ConvField
from snopt.models.image import head, stem

__all__ = ["CASES", "DTYPE", "TIMES", "Counted", "Problem", "TwoScales", "conv", "image", "mlp"]

DTYPE = torch.float64
TIMES = (0.0, 1.0)


class Counted(nn.Module):
    """A field that counts its evaluations."""

    count = 0

    def __call__(self, *args: Any) -> Any:
        """Count, and evaluate."""
        self.count += 1
        return super().__call__(*args)


class SmallConv(Counted):
    """conv3x3 -> tanh -> conv3x3 with the time as one more channel."""

    def __init__(self, channels: int, width: int, gain: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels + 1, width, 3, padding=1)
        self.last = nn.Conv2d(width + 1, channels, 3, padding=1)
        louder(self, gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at images ``x``."""
        x = torch.tanh(self.first(torch.cat([x, t.expand_as(x[:, :1])], dim=1)))
        return self.last(torch.cat([x, t.expand_as(x[:, :1])], dim=1))  # type: ignore[no-any-return]


class SmallMLP(Counted):
    """linear -> tanh -> linear with the time as one more input."""

    def __init__(self, dim: int, width: int, gain: float = 2.0) -> None:
        super().__init__()
        self.first = nn.Linear(dim + 1, width)
        self.last = nn.Linear(width, dim)
        louder(self, gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points ``x``."""
        time = t.expand(x.shape[0], 1)
        return self.last(torch.tanh(self.first(torch.cat([x, time], dim=1))))  # type: ignore[no-any-return]


class TwoScales(SmallMLP):
    """The same with half of the directions contracting fast: run backward, they explode."""

    rate = 12.0

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points ``x``."""
        fast = torch.arange(x.shape[1]) % 2 == 0
        return super().forward(t, x) - self.rate * x * fast


class CountedConv(Counted, ConvField):
    """The field of the paper's image models, counting its evaluations."""


def louder(field: nn.Module, gain: float) -> None:
    """Make untrained weights as large as trained ones."""
    for parameter in field.parameters():
        parameter.data.mul_(gain)


@dataclass
class Problem:
    """A field, its start and its cost; times are those of [0, 1].

    Attributes:
        field: the vector field; derivatives are those by its parameters.
        x0: where solves start.
        cost: of the state at the end.
    """

    field: Counted
    x0: Tensor
    cost: Callable[[Tensor], Tensor]

    @property
    def args(self) -> tuple[Counted, Tensor, tuple[float, float], Callable[[Tensor], Tensor]]:
        """What functions of :mod:`snopt.kronecker` take: field, start, times, cost."""
        return self.field, self.x0, TIMES, self.cost

    @property
    def n(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.field.parameters())


def conv(x0: Tensor, labels: Tensor, *, width: int, gain: float) -> Problem:
    """Images as states, a linear read-out, cross-entropy.

    Args:
        x0: images, (batch, channels, height, width).
        labels: their classes, of ten.
        width: channels between the two convolutions.
        gain: what untrained weights are multiplied by.
    """
    field = SmallConv(x0.shape[1], width, gain).to(DTYPE)
    readout = nn.Linear(x0[0].numel(), 10, dtype=DTYPE).requires_grad_(False)
    x0 = x0.to(DTYPE)
    return Problem(field, x0, lambda x: functional.cross_entropy(readout(x.flatten(1)), labels))


def mlp(dim: int, width: int, batch: int, kind: type[SmallMLP] = SmallMLP) -> Problem:
    """A batch of points, cross-entropy of a linear read-out.

    Args:
        dim: of a point.
        width: of the hidden layer.
        batch: how many points.
        kind: the field.
    """
    field, x0 = kind(dim, width).to(DTYPE), torch.randn(batch, dim, dtype=DTYPE)
    readout = nn.Linear(dim, 3, dtype=DTYPE).requires_grad_(False)
    labels = torch.arange(batch) % 3
    return Problem(field, x0, lambda x: functional.cross_entropy(readout(x), labels))


def image(x: Tensor, labels: Tensor, *, width: int) -> Problem:
    """The block of the paper's image model, untrained, between its own stem and read-out.

    Args:
        x: images, (batch, channels, height, width).
        labels: their classes, of ten.
        width: channels of the state, 64 in the paper.
    """
    before = stem(x.shape[1], width).to(x.device, DTYPE).requires_grad_(False)
    after = head(width, 10).to(x.device, DTYPE).requires_grad_(False)
    field = CountedConv(width).to(x.device, DTYPE)
    x0 = before(x.to(DTYPE))
    return Problem(field, x0, lambda state: functional.cross_entropy(after(state), labels))


def _random_conv(gain: float) -> Problem:
    """Two images of 2 x 5 x 5."""
    field, x0 = SmallConv(2, 4, gain).to(DTYPE), torch.randn(2, 2, 5, 5, dtype=DTYPE)
    readout, labels = nn.Linear(50, 10, dtype=DTYPE).requires_grad_(False), torch.tensor([3, 7])
    return Problem(field, x0, lambda x: functional.cross_entropy(readout(x.flatten(1)), labels))


CASES: dict[str, Callable[[], Problem]] = {
    "conv": lambda: _random_conv(gain=2.0),
    "conv_strong": lambda: _random_conv(gain=6.0),
    "mlp_2d": lambda: mlp(dim=2, width=16, batch=8),
    "mlp_8d": lambda: mlp(dim=8, width=24, batch=4),
    "mlp_two_scales": lambda: mlp(dim=4, width=16, batch=4, kind=TwoScales),
}
"""Problems with random states; what they draw depends on the seed alone."""
