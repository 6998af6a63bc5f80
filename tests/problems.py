"""Differential equations with known solutions, shared by the tests of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import snopt


@dataclass(frozen=True)
class Problem:
    """A field, where it starts, and where it is at time ``t``."""

    field: Callable[[Tensor, Tensor], Tensor]
    x0: Tensor
    solution: Callable[[float], Tensor]
    t1: float = 2.0


def _double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _turning(t: Tensor, x: Tensor) -> Tensor:
    return torch.stack([x[1], -x[0]]) * (1.0 + torch.sin(t))


def _turned(t: float) -> Tensor:
    angle = t + 1.0 - math.cos(t)
    return _double(math.cos(angle), -math.sin(angle))


PROBLEMS = {
    "decay": Problem(
        lambda t, x: -x, _double(1.0, 2.0), lambda t: _double(1.0, 2.0) * math.exp(-t)
    ),
    "turning": Problem(_turning, _double(1.0, 0.0), _turned),
    "logistic": Problem(
        lambda t, x: x * (1.0 - x),
        _double(0.1),
        lambda t: _double(1.0 / (1.0 + 9.0 * math.exp(-t))),
    ),
    "forced": Problem(
        lambda t, x: -5.0 * (x - torch.cos(t)),
        _double(0.0),
        lambda t: _double(
            (25.0 * math.cos(t) + 5.0 * math.sin(t) - 25.0 * math.exp(-5.0 * t)) / 26.0
        ),
    ),
    "backward": Problem(
        lambda t, x: x + t, _double(1.0), lambda t: _double(2.0 * math.exp(t) - t - 1.0), t1=-1.5
    ),
    "complex": Problem(
        lambda t, x: 1j * x,
        torch.tensor([1.0 + 0.0j], dtype=torch.complex128),
        lambda t: torch.tensor([complex(math.cos(t), math.sin(t))], dtype=torch.complex128),
    ),
}


class TanhField(nn.Module):
    """A small smooth field that depends on time and on every parameter."""

    def __init__(self, width: int = 3, hidden: int = 8, gain: float = 1.5) -> None:
        super().__init__()
        self.first = nn.Linear(width + 1, hidden, dtype=torch.float64)
        self.second = nn.Linear(hidden, width, dtype=torch.float64)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        time = t.expand(*x.shape[:-1], 1)
        return self.second(torch.tanh(self.first(torch.cat([x, time], dim=-1))))


class PairField(nn.Module):
    """A field on nested tuples ``(x, (y, z))`` whose parts drive each other."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TanhField(4)

    def forward(self, t: Tensor, state: tuple[Tensor, tuple[Tensor, Tensor]]):
        x, (y, z) = state
        out = self.net(t, torch.cat([x, y], dim=-1))
        return out[..., :2], (out[..., 2:], (x * y).sum(-1) - z)


class LayerField(nn.Module):
    """tanh of one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


class Residual(nn.Module):
    """One Euler step of length one, written out."""

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, x: Tensor) -> Tensor:
        return x + self.field(torch.zeros((), dtype=x.dtype), x)


def descend(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], steps: int):
    """Run the usual loop; return the losses."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


class Count:
    """An observer that counts what it is told."""

    quadrature = snopt.PerStep(2)
    told = 0

    def observe(self, t: Tensor, weight: Tensor, x: Tensor, Q_x: Tensor) -> None:
        self.told += 1
