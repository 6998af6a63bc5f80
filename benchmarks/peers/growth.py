"""How the time and memory of one iteration grow with batch, width, steps and layers.

The model is a tanh network solved by equal Runge-Kutta steps, so that the work is known. One size
grows while the others stay; times of a size are interleaved. Memory is the most that
tensors take at one time in an iteration, with the weights and the optimizer's state.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchdiffeq
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import snopt
from benchmarks.files import RESULTS, keep
from benchmarks.measuring import Iteration, interleave
from snopt.kronecker import KroneckerOptions
from snopt.lab.paper.peak import MB, peak_megabytes
from snopt.lab.paper.timing import summary
from snopt.optim import SNOpt


@dataclass(frozen=True)
class Size:
    """One problem; along an axis one of these grows."""

    batch: int = 128
    width: int = 64
    steps: int = 8
    layers: int = 2


AXES = {
    "batch": (64, 256, 1024, 4096),
    "width": (32, 128, 512, 2048),
    "steps": (8, 32, 128, 512),
    "layers": (1, 4, 16, 64),
}


BLOCK = 256
"""Largest block of a factor of ``snopt_blocks``: the advice for wide layers."""


class Deep(nn.Module):
    """Linear layers with tanh after each; does not depend on time."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at ``x``, (batch, width)."""
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Model(nn.Module):
    """A field, a solve of it by equal steps, and the mean square of its end."""

    def __init__(self, size: Size, ours: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.field = Deep(size.width, size.layers)
        self.register_buffer("inputs", torch.randn(size.batch, size.width))
        solver = {"method": "rk4", "options": {"step_size": 1.0 / size.steps}}
        self.flow = snopt.NeuralODE(self.field, **solver) if ours else partial(self._peer, solver)

    def _peer(self, solver: dict[str, Any], x: Tensor) -> Tensor:
        times = torch.tensor([0.0, 1.0])
        return torchdiffeq.odeint_adjoint(self.field, x, times, **solver)[-1]

    def forward(self) -> Tensor:
        """Return the loss."""
        return self.flow(self.inputs).square().mean()


def megabytes(iteration: Iteration) -> float:
    """Return the peak megabytes of tensors, weights and optimizer state included."""
    state = tree_leaves(iteration.optimizer.state_dict()["state"])
    lasting = [*iteration.loss.parameters(), *state]
    held = sum(each.nbytes for each in lasting if isinstance(each, Tensor))
    return peak_megabytes(iteration.run) + held / MB


def _adam(size: Size, ours: bool) -> Iteration:
    model = Model(size, ours)
    return Iteration(model, torch.optim.Adam(model.parameters(), lr=0.0))


def _snopt(size: Size, refresh: bool, **options: Any) -> Iteration:
    model = Model(size, ours=True)
    return Iteration(model, SNOpt(model, lr=0.0, curvature=KroneckerOptions(**options)), refresh)


CONTENDERS: dict[str, Callable[[Size], Iteration]] = {
    "snopt": partial(_snopt, refresh=False),
    "snopt_blocks": partial(_snopt, refresh=False, max_size=BLOCK),
    "snopt_refresh": partial(_snopt, refresh=True),
    "adam": partial(_adam, ours=True),
    "torchdiffeq_adam": partial(_adam, ours=False),
}


def measure(axis: str, repeats: int, most: int | None = None) -> dict[str, Any]:
    """Measure along one axis."""
    sizes = list(AXES[axis][:most])
    found: dict[str, dict[str, Any]] = {
        name: {"milliseconds": [], "megabytes": []} for name in CONTENDERS
    }
    for value in sizes:
        size = replace(Size(), **{axis: value})
        made = {name: make(size) for name, make in CONTENDERS.items()}
        times = interleave({name: each.run for name, each in made.items()}, repeats, warmup=1)
        for name, each in made.items():
            found[name]["milliseconds"].append(1e3 * summary(times[name])["median"])
            found[name]["megabytes"].append(megabytes(each))
    for name, figures in found.items():
        milliseconds = " ".join(f"{value:.1f}" for value in figures["milliseconds"])
        print(f"{axis:8} {name:18} {milliseconds} ms", flush=True)
    return {"sizes": sizes, "contenders": found}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=AXES)
    parser.add_argument("--sizes", type=int, help="number of sizes per axis; at least two")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS / "growth.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure the requested axes, writing after each."""
    for axis in chosen.axes:
        measured = measure(axis, chosen.repeats, chosen.sizes)
        keep(chosen.out, {**measured, "rounds": chosen.repeats}, "axes", axis)
