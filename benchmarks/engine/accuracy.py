"""Gradient error of a contender against a float64 reference.

The reference backpropagates through torchdiffeq's steps, in float64. Smooth
fields are solved adaptively to a tolerance of 1e-10. The image field is not
smooth: wherever a ReLU switches, the solution has a kink and its gradient a
jump, and no adaptive solver gets through thousands of them at such a
tolerance. It is solved by 320 equal Runge-Kutta steps instead, and how far its gradient is
from that of half as many steps is written beside every error.

References take minutes. They are kept in ``benchmarks/.reference``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torchdiffeq
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from benchmarks.engine.cases import CASES, Flow, Gradients, Workload, build
from benchmarks.files import ROOT

KEPT = ROOT / ".reference"


@dataclass(frozen=True)
class Recipe:
    """How a case's reference is computed.

    Attributes:
        fine: arguments of ``torchdiffeq.odeint``.
        coarse: the same with a lower accuracy, to estimate the error of the reference.
        chunk: number of samples solved at once.
        segments: number of parts of the path whose graphs are kept one at a time.
    """

    fine: dict[str, object]
    coarse: dict[str, object]
    chunk: int
    segments: int = 1


def _adaptive(tolerance: float) -> dict[str, object]:
    return {"method": "dopri5", "rtol": tolerance, "atol": tolerance}


def _equal_steps(steps: int) -> dict[str, object]:
    return {"method": "rk4", "options": {"step_size": 1.0 / steps}}


RECIPES = {
    "image": Recipe(_equal_steps(320), _equal_steps(160), chunk=32, segments=20),
    "ode_rnn": Recipe(_adaptive(1e-10), _adaptive(1e-9), chunk=128),
    "cnf_miniboone": Recipe(_adaptive(1e-10), _adaptive(1e-9), chunk=128),
    "cnf_gas": Recipe(_adaptive(1e-10), _adaptive(1e-9), chunk=250),
}


def relative_errors(found: Gradients, exact: Gradients) -> dict[str, float]:
    """Return ``|found - exact| / |exact|`` for the parameters and for the inputs."""
    return {
        key: float(torch.linalg.vector_norm(found[key] - exact[key]) / exact[key].norm())
        for key in exact
    }


def reference(case: str) -> tuple[Gradients, dict[str, float]]:
    """Return a case's reference gradients and their own estimated error."""
    file = KEPT / f"{case}.pt"
    if not file.exists():
        KEPT.mkdir(exist_ok=True)
        (KEPT / ".gitignore").write_text("*\n")
        fine = _in_chunks(case, RECIPES[case].fine)
        coarse = _in_chunks(case, RECIPES[case].coarse)
        torch.save({"gradients": fine, "error": relative_errors(coarse, fine)}, file)
    kept = torch.load(file)
    return kept["gradients"], kept["error"]


def _in_chunks(case: str, solver: dict[str, object]) -> Gradients:
    recipe = RECIPES[case]
    whole = build(case, CASES[case].forms[-1]).double()
    parts = []
    for start in range(0, whole.batch, recipe.chunk):
        part = whole.part(start, recipe.chunk)
        inputs = part.inputs.clone().requires_grad_()
        part(_flow(part, solver, recipe.segments), inputs).backward()
        parts.append(part.gradients(inputs))
    axis = whole.sample_axes["inputs"]
    return {
        "parameters": sum(part["parameters"] for part in parts),
        "inputs": torch.cat([part["inputs"] for part in parts], dim=axis),
    }


def _flow(workload: Workload, solver: dict[str, object], segments: int) -> Flow:
    times = torch.linspace(0.0, 1.0, segments + 1, dtype=torch.float64)

    def segment(x: object, start: Tensor, end: Tensor) -> object:
        span = torch.stack((start, end))
        path = torchdiffeq.odeint(workload.field, x, span, **solver)
        return tuple(part[-1] for part in path) if isinstance(path, tuple) else path[-1]

    def flow(x: object) -> object:
        if segments == 1:
            return segment(x, times[0], times[1])
        for start, end in pairwise(times):
            x = checkpoint(segment, x, start, end, use_reentrant=False)
        return x

    return flow
