"""Adjoints, methods and tolerances: gradient error against evaluations of the field.

Runs in seconds, and writes the results and the tables of docs/solving.md. One problem, in float64:
a field of four tanh layers of 32 units with weights large enough to need several steps, 64 states,
the mean square of x(1) as loss. Errors are relative, of the gradient of all parameters,
against backpropagation through dopri8 at a tolerance of 1e-13.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

import snopt
from benchmarks.engine.fields import TanhField, amplify
from benchmarks.files import DOCS, RESULTS, put, save
from snopt.lab.table import markdown

ADJOINTS = ("checkpoint", "backsolve", "reversible", "direct")
METHODS = ("bosh3", "dopri5", "tsit5", "dopri8")
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
#: The leapfrog is of second order: finer tolerances take it tens of thousands of steps.
FINEST_REVERSIBLE = 1e-6


def problem(dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    field, x0 = TanhField(32), torch.randn(64, 32, dtype=torch.float64)
    amplify(field, 3.0)
    return field.to(dtype), x0.to(dtype)


def gradient(dtype: torch.dtype = torch.float64, **settings: Any) -> tuple[Tensor, Any]:
    """Return the gradient of all parameters as one vector, and its cost."""
    field, x0 = problem(dtype)
    block = snopt.NeuralODE(field, **settings)
    block(x0)  # the first call estimates a step size and measures the tape, unlike later ones
    block(x0).square().mean().backward()
    return torch.cat([p.grad.flatten() for p in field.parameters()]), block.stats


def measured(reference: Tensor, **settings: Any) -> dict[str, Any]:
    try:
        found, stats = gradient(**settings)
    except snopt.SolveError as error:
        return {"failed": type(error).__name__}
    error = (found.double() - reference).norm() / reference.norm()
    return {
        "error": float(error),
        "forward": stats.nfe_forward,
        "backward": stats.nfe_backward,
        "steps": stats.accepted,
    }


def measure() -> dict[str, Any]:
    torch.set_num_threads(1)
    fine = {"rtol": 1e-13, "atol": 1e-13, "adjoint": "direct"}
    reference, _ = gradient(method="dopri8", **fine)

    def row(finest: float = 0.0, **settings: Any) -> dict[str, Any]:
        tolerances = [tol for tol in TOLERANCES if tol >= finest]
        return {f"{t:g}": measured(reference, rtol=t, atol=t, **settings) for t in tolerances}

    return {
        "reference": measured(reference, method="dopri5", **{**fine, "rtol": 1e-12}),
        "adjoints": {
            adjoint: row(FINEST_REVERSIBLE if adjoint == "reversible" else 0.0, adjoint=adjoint)
            for adjoint in ADJOINTS
        },
        "methods": {method: row(method=method) for method in METHODS},
        "float32": row(dtype=torch.float32),
        "keep": {
            str(keep): measured(reference, rtol=1e-4, atol=1e-4, adjoint=snopt.Checkpoint(keep))
            for keep in (0, 1, 4, None)
        },
    }


def cell(row: dict[str, Any], *, backward: bool = True) -> str:
    if not row:
        return "–"
    if "failed" in row:
        return row["failed"]
    count = f"{row['forward']} + {row['backward']}" if backward else str(row["forward"])
    return f"{row['error']:.0e} ({count})"


def grid(kind: str, rows: dict[str, Any], *, backward: bool = True) -> str:
    lines = [
        [f"`{name}`", *(cell(row.get(f"{tol:g}", {}), backward=backward) for tol in TOLERANCES)]
        for name, row in rows.items()
    ]
    return markdown([kind, *(f"{tol:.0e}" for tol in TOLERANCES)], lines)


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the guide by their places in it."""
    rows = [[name, str(row["backward"])] for name, row in found["keep"].items()]
    precision = {"float64": found["adjoints"]["checkpoint"], "float32": found["float32"]}
    return {
        "adjoints": grid("adjoint", found["adjoints"]),
        "methods": grid("method", found["methods"], backward=False),
        "precision": grid("dtype", precision, backward=False),
        "keep": markdown(["`keep`", "evaluations backward"], rows),
    }


def main(chosen: argparse.Namespace) -> None:
    """Measure, store, and write the tables."""
    found = measure()
    save(RESULTS / "choosing.json", found)
    put(DOCS / "solving.md", tables(found))
