"""Small problems whose derivatives can be computed exactly, and the paper's own field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.models.fields import ConvField
from snopt.models.image import head, stem

DTYPE = torch.float64
TIMES = (0.0, 1.0)


class Counted(nn.Module):
    """A field that counts its evaluations."""

    count = 0

    def __call__(self, *args: Any) -> Any:
        """Evaluate the field."""
        self.count += 1
        return super().__call__(*args)


class SmallConv(Counted):
    """conv3x3 -> tanh -> conv3x3 with time as an additional channel."""

    def __init__(self, channels: int, width: int, gain: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels + 1, width, 3, padding=1)
        self.last = nn.Conv2d(width + 1, channels, 3, padding=1)
        scaled_up(self, gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at images ``x``."""
        x = torch.tanh(self.first(torch.cat([x, t.expand_as(x[:, :1])], dim=1)))
        return self.last(torch.cat([x, t.expand_as(x[:, :1])], dim=1))  # type: ignore[no-any-return]


class SmallMLP(Counted):
    """linear -> tanh -> linear with time as an additional input."""

    def __init__(self, dim: int, width: int, gain: float = 2.0) -> None:
        super().__init__()
        self.first = nn.Linear(dim + 1, width)
        self.last = nn.Linear(width, dim)
        scaled_up(self, gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points ``x``."""
        time = t.expand(x.shape[0], 1)
        return self.last(torch.tanh(self.first(torch.cat([x, time], dim=1))))  # type: ignore[no-any-return]


class TwoScales(SmallMLP):
    """The same with half of the directions contracting fast, so that they explode backward."""

    rate = 12.0

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points ``x``."""
        fast = torch.arange(x.shape[1]) % 2 == 0
        return super().forward(t, x) - self.rate * x * fast


class CountedConv(Counted, ConvField):
    """The field of the paper's image models, counting its evaluations."""


def scaled_up(field: nn.Module, gain: float) -> None:
    """Scale untrained weights up to the size of trained ones."""
    for parameter in field.parameters():
        parameter.data.mul_(gain)


@dataclass
class Problem:
    """A field, an initial state and a cost on [0, 1].

    Attributes:
        field: the vector field; derivatives are with respect to its parameters.
        x0: initial state.
        cost: cost of the final state.
    """

    field: Counted
    x0: Tensor
    cost: Callable[[Tensor], Tensor]

    @property
    def args(self) -> tuple[Counted, Tensor, tuple[float, float], Callable[[Tensor], Tensor]]:
        """The first arguments of the functions of :mod:`snopt.second_order`."""
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
        gain: factor of the untrained weights.
    """
    field = SmallConv(x0.shape[1], width, gain).to(DTYPE)
    readout = nn.Linear(x0[0].numel(), 10, dtype=DTYPE).requires_grad_(False)
    x0 = x0.to(DTYPE)
    return Problem(field, x0, lambda x: functional.cross_entropy(readout(x.flatten(1)), labels))


def mlp(dim: int, width: int, batch: int, kind: type[SmallMLP] = SmallMLP) -> Problem:
    """A batch of points, cross-entropy of a linear read-out.

    Args:
        dim: dimension of a point.
        width: units of the hidden layer.
        batch: number of points.
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


CASES: dict[str, Callable[[], Problem]] = {
    "conv": lambda: conv(torch.randn(2, 2, 5, 5), torch.tensor([3, 7]), width=4, gain=2.0),
    "conv_strong": lambda: conv(torch.randn(2, 2, 5, 5), torch.tensor([3, 7]), width=4, gain=6.0),
    "mlp_2d": lambda: mlp(dim=2, width=16, batch=8),
    "mlp_8d": lambda: mlp(dim=8, width=24, batch=4),
    "mlp_two_scales": lambda: mlp(dim=4, width=16, batch=4, kind=TwoScales),
}
"""Problems with random states, which depend on the seed only."""
