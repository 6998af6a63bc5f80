"""Peak memory of each adjoint as the number of steps grows.

One field, one state of 128 x 256 numbers, equal Euler steps (leapfrog steps for the
reversible adjoint), forward plus backward, each in a fresh process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torchdiffeq
from torch import Tensor, nn

import snopt
from benchmarks.files import RESULTS, save
from snopt.lab.paper.peak import in_fresh_process, rise

BATCH, WIDTH = 128, 256
Solve = Callable[[nn.Module, Tensor, int], Tensor]


class Relaxation(nn.Module):
    """``tanh(W x) - x``: keeps the state bounded however long it is integrated."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at ``x``, (batch, width)."""
        return torch.tanh(self.linear(x)) - x


def _snopt(field: nn.Module, x: Tensor, steps: int, *, adjoint: str) -> Tensor:
    options = {"step_size": 1.0 / steps}
    return snopt.NeuralODE(field, method="euler", adjoint=adjoint, options=options)(x)


def _leapfrog(field: nn.Module, x: Tensor, steps: int) -> Tensor:
    # The leapfrog is always adaptive: accept every step, and bound its length.
    options = {"first_step": 1.0 / steps, "max_step": 1.0 / steps}
    block = snopt.NeuralODE(field, adjoint="reversible", rtol=1e6, atol=1e6, options=options)
    end = block(x)
    if abs(block.stats.accepted - steps) > 1:
        raise RuntimeError(f"wanted {steps} steps, got {block.stats.accepted}")
    return end


def _torchdiffeq(
    field: nn.Module, x: Tensor, steps: int, *, integrate: Callable[..., Tensor]
) -> Tensor:
    options = {"step_size": 1.0 / steps}
    return integrate(field, x, torch.tensor([0.0, 1.0]), method="euler", options=options)[-1]


ADJOINTS: dict[str, Solve] = {
    "snopt_checkpoint": partial(_snopt, adjoint="checkpoint"),
    "snopt_backsolve": partial(_snopt, adjoint="backsolve"),
    "snopt_reversible": _leapfrog,
    "snopt_direct": partial(_snopt, adjoint="direct"),
    "torchdiffeq_adjoint": partial(_torchdiffeq, integrate=torchdiffeq.odeint_adjoint),
    "torchdiffeq_direct": partial(_torchdiffeq, integrate=torchdiffeq.odeint),
}


def peak(name: str, steps: int) -> float:
    """Measure, in this process, the peak megabytes of one gradient."""
    torch.manual_seed(0)
    field = Relaxation()
    x = torch.randn(BATCH, WIDTH, requires_grad=True)

    def gradient(count: int) -> None:
        ADJOINTS[name](field, x, count).square().mean().backward()

    gradient(2)  # what libraries allocate on first use does not belong to the adjoint
    return rise(lambda: gradient(steps))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--steps", nargs="+", type=int, default=[50, 150, 500, 1500, 5000])
    parser.add_argument("--out", type=Path, default=RESULTS / "memory.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure every adjoint at every number of steps."""
    megabytes: dict[str, list[float]] = {}
    for name in ADJOINTS:
        megabytes[name] = [in_fresh_process(peak, name, steps) for steps in chosen.steps]
        print(f"{name:20}", *(f"{value:9.1f}" for value in megabytes[name]), flush=True)
    save(chosen.out, {"steps": chosen.steps, "megabytes": megabytes})
