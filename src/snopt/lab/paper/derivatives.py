"""Errors of first and second derivatives through a solve, side by side (``table:adj2-error``).

An error is the relative distance of products with the same few random vectors, from those with the
Hessian or with the Gauss-Newton matrix, whichever the method computes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from snopt.adjoint import odeint
from snopt.lab.optimizers.recursive import Recursive
from snopt.lab.paper.problems import TIMES, Problem
from snopt.second_order.low_rank import low_rank
from snopt.second_order.matrix_odes import differential_programming
from snopt.second_order.outer_products import hessian_factors
from snopt.second_order.products import ggn_vector_product, hessian_vector_product

VECTORS = 4

Truth: TypeAlias = Callable[[Problem, Tensor], dict[str, Tensor]]
Method: TypeAlias = Callable[[Problem, Tensor, dict[str, Any]], Tensor]


def solver(method: str, grade: float) -> dict[str, Any]:
    """Return the arguments of a solver.

    Args:
        method: name of the method.
        grade: tolerance of ``dopri5``, step size of the others.

    Example:
        >>> solver("dopri5", 1e-3)
        {'method': 'dopri5', 'rtol': 0.001, 'atol': 0.001}
    """
    if method == "dopri5":
        return {"method": method, "rtol": grade, "atol": grade}
    tolerance = 1e-6  # of implicit_adams' corrector
    options = {"step_size": grade}
    return {"method": method, "rtol": tolerance, "atol": tolerance, "options": options}


# ------------------------------------------------------------------------------------ truth


def truth(problem: Problem, v: Tensor) -> dict[str, Tensor]:
    """Compute gradient and products by autograd through a dopri8 solve at tolerance 1e-12.

    Args:
        problem: a problem with a smooth field.
        v: vectors, one per row.
    """
    params = tuple(problem.field.parameters())
    fine: dict[str, Any] = {"method": "dopri8", "rtol": 1e-12, "atol": 1e-12}
    x1 = odeint(problem.field, problem.x0, TIMES, adjoint="direct", **fine)[-1]
    slope = _flat(torch.autograd.grad(problem.cost(x1), params, create_graph=True))
    hessian = [_flat(torch.autograd.grad(slope, params, row, retain_graph=True)) for row in v]
    # J v by pulling back twice, then Jᵀ (Φ_xx J v).
    dummy = torch.zeros_like(x1, requires_grad=True)
    pulled = _flat(torch.autograd.grad(x1, params, dummy, create_graph=True))
    ggn = []
    for row in v:
        (tangent,) = torch.autograd.grad(pulled, dummy, row, retain_graph=True)
        _, bent = torch.autograd.functional.hvp(problem.cost, x1.detach(), tangent)
        ggn.append(_flat(torch.autograd.grad(x1, params, bent, retain_graph=True)))
    return {
        "gradient": slope.detach(),
        "hessian": torch.stack(hessian).detach(),
        "ggn": torch.stack(ggn).detach(),
    }


def fine_truth(problem: Problem, v: Tensor, step: float = 1 / 128) -> dict[str, Tensor]:
    """Compute gradient and products through many small steps of rk4.

    For fields that are large or have kinks, where tolerances near rounding cannot be met.

    Args:
        problem: a problem with any field.
        v: vectors, one per row.
        step: step size.
    """
    fine = solver("rk4", step)
    return {
        "gradient": gradient(problem, fine, "checkpoint"),
        "hessian": hessian_vector_product(*problem.args, v, **fine).detach(),
        "ggn": ggn_vector_product(*problem.args, v, **fine).detach(),
    }


def gradient(
    problem: Problem, s: dict[str, Any], adjoint: Any, *, create_graph: bool = False
) -> Tensor:
    """Compute the gradient with an adjoint of :func:`snopt.odeint`."""
    x1 = odeint(problem.field, problem.x0, TIMES, adjoint=adjoint, **s)[-1]
    params = tuple(problem.field.parameters())
    return _flat(torch.autograd.grad(problem.cost(x1), params, create_graph=create_graph))


def recursive_product(problem: Problem, v: Tensor, s: dict[str, Any]) -> Tensor:
    """Compute products of the Hessian with the rows of ``v`` by the adjoint of the adjoint."""
    found = gradient(problem, s, Recursive(), create_graph=True)
    params = tuple(problem.field.parameters())
    rows = [torch.autograd.grad(found, params, row, retain_graph=True) for row in v]
    return torch.stack([_flat(row) for row in rows])


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


# ---------------------------------------------------------------------------- what is compared


def _matrix(*, exact: bool = False, adjoint: str = "backsolve") -> Method:
    def matrix(p: Problem, v: Tensor, s: dict[str, Any]) -> Tensor:
        return v @ differential_programming(*p.args, exact=exact, adjoint=adjoint, **s).Q_uu

    return matrix


def _product(make: Callable[..., Tensor], adjoint: str) -> Method:
    return lambda p, v, s: make(*p.args, v, adjoint=adjoint, **s)


CONTENDERS: dict[str, tuple[str, Method]] = {
    "gradient, adjoint": ("gradient", lambda p, v, s: gradient(p, s, Recursive())),
    "gradient, Theorem 1": ("gradient", lambda p, v, s: differential_programming(*p.args, **s).Q_u),
    "gradient, checkpoint": ("gradient", lambda p, v, s: gradient(p, s, "checkpoint")),
    "Hessian, recursive adjoint": ("hessian", recursive_product),
    "Hessian, Theorem 1 exact": ("hessian", _matrix(exact=True)),
    "Hessian, Theorem 1 exact by checkpoint": (
        "hessian",
        _matrix(exact=True, adjoint="checkpoint"),
    ),
    "Hessian, product by backsolve": ("hessian", _product(hessian_vector_product, "backsolve")),
    "Hessian, product by checkpoint": ("hessian", _product(hessian_vector_product, "checkpoint")),
    "Gauss-Newton, Theorem 1": ("ggn", _matrix()),
    "Gauss-Newton, Theorem 1 by checkpoint": ("ggn", _matrix(adjoint="checkpoint")),
    "Gauss-Newton, Proposition 2": (
        "ggn",
        lambda p, v, s: low_rank(*p.args[:3], hessian_factors(p.cost), **s).product(v),
    ),
    "Gauss-Newton, product by checkpoint": ("ggn", _product(ggn_vector_product, "checkpoint")),
}
"""By name: the true value to compare with, and how the method computes it."""

PRODUCTS = tuple(
    name for name in CONTENDERS if not any(word in name for word in ("Theorem", "Proposition"))
)
"""Methods that form no matrix, and so work for large fields."""


def measure_errors(
    make: Callable[[], Problem],
    grades: Mapping[str, Sequence[float]],
    *,
    contenders: Sequence[str] = tuple(CONTENDERS),
    true: Truth = truth,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Compare methods on a problem: error, seconds and evaluations by solver and grade.

    Args:
        make: creates the problem, after seeding.
        grades: tolerances or step sizes by solver.
        contenders: names of the methods.
        true: computes the true values.
        tell: receives a line on every result.

    Returns:
        Sizes ``m`` and ``n``, and under ``methods`` by solver and method a list with one entry per
        grade: ``error``, ``seconds``, ``evaluations`` and the warnings of the solver.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        problem = make()
        like = problem.x0
        v = torch.randn(problem.n, VECTORS, dtype=like.dtype).to(like.device)
        v = torch.linalg.qr(v)[0].mT
    aims = true(problem, v)
    found: dict[str, Any] = {"m": like.numel(), "n": problem.n, "methods": {}}
    for method, several in grades.items():
        rows: dict[str, list[dict[str, Any]]] = {}
        found["methods"][method] = rows
        for grade in several:
            for name in contenders:
                if method == "implicit_adams" and "by checkpoint" in name:
                    continue  # steps of a black box cannot be run again
                row = _measure(problem, v, aims, name, solver(method, grade))
                rows.setdefault(name, []).append({"grade": grade, **row})
                tell(f"{method:15} {grade:8.2g} {name:38} {row['error']:.2e}")
    return found


def _measure(
    problem: Problem, v: Tensor, aims: dict[str, Tensor], name: str, settings: dict[str, Any]
) -> dict[str, Any]:
    target, run = CONTENDERS[name]
    problem.field.count, start = 0, time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(problem, v, settings).detach()
    seconds = time.perf_counter() - start
    distance = torch.linalg.vector_norm(result - aims[target])
    return {
        "error": float(distance / torch.linalg.vector_norm(aims[target])),
        "seconds": round(seconds, 3),
        "evaluations": problem.field.count,
        "warnings": sorted({str(warning.message) for warning in caught}),
    }
