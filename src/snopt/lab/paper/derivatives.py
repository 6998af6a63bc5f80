"""Errors of first and second derivatives through a solve, side by side (``table:adj2-error``).

An error is the relative distance of products with the same few random vectors: of the Hessian for
those methods that compute the Hessian, of the Gauss-Newton matrix for those that compute that.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from snopt.adjoint import odeint
from snopt.lab.optimizers.recursive import recursive_gradient, recursive_hessian_product
from snopt.lab.paper.problems import TIMES, Problem
from snopt.second_order.low_rank import low_rank
from snopt.second_order.matrix_odes import differential_programming
from snopt.second_order.outer_products import hessian_factors
from snopt.second_order.products import ggn_vector_product, hessian_vector_product

__all__ = ["CONTENDERS", "PRODUCTS", "fine_truth", "measure_errors", "solver", "truth"]

VECTORS = 4

Truth: TypeAlias = Callable[[Problem, Tensor], dict[str, Tensor]]
Method: TypeAlias = Callable[[Problem, Tensor, dict[str, Any]], Tensor]


def solver(method: str, grade: float) -> dict[str, Any]:
    """Return the arguments of a solver at some coarseness.

    Args:
        method: its name.
        grade: the tolerance of ``dopri5``; the step of the others.

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
        problem: of a smooth field.
        v: vectors, one a row.
    """
    params = tuple(problem.field.parameters())
    fine: dict[str, Any] = {"method": "dopri8", "rtol": 1e-12, "atol": 1e-12}
    x1 = odeint(problem.field, problem.x0, TIMES, adjoint="direct", **fine)[-1]
    gradient = _flat(torch.autograd.grad(problem.cost(x1), params, create_graph=True))
    hessian = [_flat(torch.autograd.grad(gradient, params, row, retain_graph=True)) for row in v]
    # J v by pulling back twice, then Jᵀ (Φ_xx J v).
    dummy = torch.zeros_like(x1, requires_grad=True)
    pulled = _flat(torch.autograd.grad(x1, params, dummy, create_graph=True))
    ggn = []
    for row in v:
        (tangent,) = torch.autograd.grad(pulled, dummy, row, retain_graph=True)
        _, bent = torch.autograd.functional.hvp(problem.cost, x1.detach(), tangent)
        ggn.append(_flat(torch.autograd.grad(x1, params, bent, retain_graph=True)))
    return {
        "gradient": gradient.detach(),
        "hessian": torch.stack(hessian).detach(),
        "ggn": torch.stack(ggn).detach(),
    }


def fine_truth(problem: Problem, v: Tensor, step: float = 1 / 128) -> dict[str, Tensor]:
    """Compute gradient and products through many small steps of rk4, which are run again backward.

    For fields that are large, or have kinks, where no tolerance near rounding can be kept.

    Args:
        problem: of any field.
        v: vectors, one a row.
        step: length of a step.
    """
    fine = solver("rk4", step)
    return {
        "gradient": discrete_gradient(problem, fine),
        "hessian": hessian_vector_product(*problem.args, v, **fine).detach(),
        "ggn": ggn_vector_product(*problem.args, v, **fine).detach(),
    }


def discrete_gradient(problem: Problem, s: dict[str, Any]) -> Tensor:
    """Compute the gradient through the steps taken."""
    x1 = odeint(problem.field, problem.x0, TIMES, adjoint="checkpoint", **s)[-1]
    return _flat(torch.autograd.grad(problem.cost(x1), tuple(problem.field.parameters())))


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


# ---------------------------------------------------------------------------- what is compared

CONTENDERS: dict[str, tuple[str, Method]] = {
    "gradient, adjoint": ("gradient", lambda p, v, s: recursive_gradient(*p.args, **s)),
    "gradient, Theorem 1": ("gradient", lambda p, v, s: differential_programming(*p.args, **s).Q_u),
    "gradient, checkpoint": ("gradient", lambda p, v, s: discrete_gradient(p, s)),
    "recursive adjoint": ("hessian", lambda p, v, s: recursive_hessian_product(*p.args, v, **s)),
    "exact": (
        "hessian",
        lambda p, v, s: v @ differential_programming(*p.args, exact=True, **s).Q_uu,
    ),
    "exact, checkpoint": (
        "hessian",
        lambda p, v, s: (
            v @ differential_programming(*p.args, exact=True, adjoint="checkpoint", **s).Q_uu
        ),
    ),
    "product, backsolve": (
        "hessian",
        lambda p, v, s: hessian_vector_product(*p.args, v, adjoint="backsolve", **s),
    ),
    "product, checkpoint": ("hessian", lambda p, v, s: hessian_vector_product(*p.args, v, **s)),
    "Theorem 1": ("ggn", lambda p, v, s: v @ differential_programming(*p.args, **s).Q_uu),
    "Theorem 1, checkpoint": (
        "ggn",
        lambda p, v, s: v @ differential_programming(*p.args, adjoint="checkpoint", **s).Q_uu,
    ),
    "Proposition 2": (
        "ggn",
        lambda p, v, s: low_rank(*p.args[:3], hessian_factors(p.cost), **s).product(v),
    ),
    "GGN product, checkpoint": ("ggn", lambda p, v, s: ggn_vector_product(*p.args, v, **s)),
}
"""By name: what it is compared with, and how it is computed."""

PRODUCTS = (
    "gradient, adjoint",
    "gradient, checkpoint",
    "recursive adjoint",
    "product, backsolve",
    "product, checkpoint",
    "GGN product, checkpoint",
)
"""Those that form no matrix, and so can be asked of large fields."""


def measure_errors(
    make: Callable[[], Problem],
    grades: Mapping[str, Sequence[float]],
    *,
    contenders: Sequence[str] = tuple(CONTENDERS),
    true: Truth = truth,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Compare methods on a problem: error, seconds and evaluations by solver and coarseness.

    Args:
        make: makes the problem; seeded before it is called.
        grades: by solver, how coarse to solve.
        contenders: which methods.
        true: computes what they are compared with.
        tell: told a line about every result.

    Returns:
        Sizes ``m`` and ``n``; and under ``methods`` by solver and contender a list, a grade each:
        ``error``, ``seconds``, ``evaluations`` and what the solver has warned of.
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
                if not _applies(name, method):
                    continue
                row = _measure(problem, v, aims, name, solver(method, grade))
                rows.setdefault(name, []).append({"grade": grade, **row})
                tell(
                    f"{method:15} {grade:8.2g} {name:24} {row['error']:.2e} {row['seconds']:.2f} s"
                )
    return found


def _applies(name: str, method: str) -> bool:
    """Tell whether a contender can use a solver: a black box's steps cannot be run again."""
    black_box = method == "implicit_adams"
    return not (black_box and ", checkpoint" in name and CONTENDERS[name][0] != "gradient")


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
