"""Errors of first and second derivatives: the recursive adjoint, Theorem 1, and products."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from snopt.lab.config import Scale
from snopt.lab.data import DataNotFound, load
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.curves import clean, grid, legend, ticks
from snopt.lab.paper.derivatives import CONTENDERS, PRODUCTS, fine_truth, measure_errors, truth
from snopt.lab.paper.item import Cell, Result, Space, Table, measured_item
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.problems import CASES, Problem, conv, image, mlp
from snopt.lab.paper.published import published

LEFT_OUT = ("gradient, Theorem 1", "exact by checkpoint", "Theorem 1 by checkpoint")
SHOWN = tuple(name for name in CONTENDERS if not name.endswith(LEFT_OUT))
"""Methods of the table."""
CODE = (
    "base", "ode", "adjoint", "second_order", "models", "lab/data", "lab/optimizers/recursive.py",
    "lab/paper/derivatives.py", "lab/paper/problems.py",
)  # fmt: skip

GRADES: dict[Scale, dict[str, tuple[float, ...]]] = {
    "smoke": {"rk4": (1 / 4,), "implicit_adams": (1 / 8,), "dopri5": (1e-2,)},
    "cpu": {
        "rk4": (1 / 16, 1 / 8, 1 / 4),
        "implicit_adams": (1 / 16, 1 / 8),
        "dopri5": (1e-3, 1e-2, 1e-4),
    },
}
GRADES["full"] = GRADES["cpu"]
"""Step sizes, and tolerances of dopri5; the table shows the first, the figure all."""
FULL_IMAGES = 16


def cifar10(count: int) -> tuple[Tensor, Tensor] | None:
    """Return images with their classes; None if they are not on disk."""
    try:
        batch = load("cifar10").test[:count]
    except DataNotFound:
        return None
    assert batch.y is not None
    return batch.x, batch.y


def small_images() -> Problem:
    """Return two images of CIFAR10 at 4 x 4 pixels, or random ones, small enough for Theorem 1."""
    x, y = cifar10(2) or (torch.randn(2, 3, 4, 4), torch.tensor([3, 7]))
    return conv(functional.adaptive_avg_pool2d(x, 4), y, width=3, gain=6.0)


def images() -> Problem:
    """Return the paper's field on features of CIFAR10, on a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = load("cifar10").test[:FULL_IMAGES].to(device)
    assert batch.y is not None
    return image(batch.x, batch.y, width=64)


PROBLEMS: dict[Scale, dict[str, tuple[str, Any]]] = {
    "smoke": {"mlp": ("MLP", lambda: mlp(dim=2, width=4, batch=2))},
    "cpu": {
        "conv": ("convolutions", small_images),
        "two-scales": ("MLP, contracting", CASES["mlp_two_scales"]),
    },
    "full": {"cifar10": ("CIFAR10, 64 channels", images)},
}
"""By name of the record: the name in the table, and a function that creates the problem."""


def measurements(space: Space) -> dict[tuple[str, str], Measurement]:
    """Return a job for each problem and solver, by the problem's title and the solver."""
    large = space.scale == "full"
    contenders, true = (PRODUCTS, fine_truth) if large else (SHOWN, truth)
    made = {}
    for name, (title, make) in PROBLEMS[space.scale].items():
        for method, grades in GRADES[space.scale].items():
            measure = partial(
                measure_errors, make, {method: grades}, contenders=contenders, true=true
            )
            folder = space.measurement(f"adj2-error-{name}-{method}")
            made[title, method] = Measurement(folder, measure, (grades, contenders), CODE)
    return made


def result(space: Space, found: dict[tuple[str, str], dict[str, Any]]) -> Result:
    """Collect the errors, beside the paper's."""
    solvers = list(GRADES[space.scale])
    curves: dict[str, Any] = {}
    for (title, method), each in found.items():
        lines = curves.setdefault(f"{title}, m={each['m']}, n={each['n']}", {})
        for contender, points in each["methods"][method].items():
            errors = [[point["grade"], point["error"]] for point in points]
            lines.setdefault(contender, {})[method] = errors
    rows: list[list[Cell]] = [
        [title, contender, *(f"{by[m][0][1]:.2g}" if m in by else None for m in solvers)]
        for title, lines in curves.items()
        for contender, by in lines.items()
    ]
    paper = published("table:adj2-error")
    for row, words in (("first", "gradient, adjoint"), ("second", "Hessian, recursive adjoint")):
        values = [f"{value:.2g}" for m in solvers if (value := paper.value(row, m)) is not None]
        rows.append([f"paper, Table {paper.number}", words, *values])
    heads = [f"{m}, {grade_text(m, GRADES[space.scale][m][0])}" for m in solvers]
    caption = "Relative errors at a tolerance (dopri5) or step (the others)."
    return Result([Table(caption, ["field", "derivative", *heads], rows)], notes(space), curves)


def grade_text(method: str, grade: float) -> str:
    """Format a tolerance or a step size.

    Example:
        >>> grade_text("dopri5", 1e-3), grade_text("rk4", 1 / 16)
        ('0.001', '1/16')
    """
    return f"{grade:g}" if method == "dopri5" else f"1/{1 / grade:g}"


def notes(space: Space) -> list[str]:
    """Return notes on how errors were measured."""
    said = [
        "An error is that of products with four random vectors, divided by the norm of the true "
        "products, in double precision. The paper does not say how it measured its own, nor with "
        "which steps.",
        "implicit_adams is a black box whose steps cannot be run again: no checkpoint.",
        "True values: autograd through dopri8 at tolerance 1e-12.",
    ]
    if space.scale == "full":
        said[-1] = (
            f"True values: rk4 with 128 steps. {FULL_IMAGES} images of CIFAR10, an untrained "
            "model. Theorem 1 would need a matrix of all parameters: products only."
        )
    elif space.scale == "cpu":
        origin = "of CIFAR10 at 4 x 4 pixels" if cifar10(2) else "of noise (no CIFAR10 at hand)"
        said.append(
            f"Convolutions: two images {origin}, tanh, weights six times as large as torch's. "
            "MLP: half of its directions contract at rate 12."
        )
    return said


def draw(figure: Any, found: Result) -> None:
    """Draw errors over tolerances or step sizes, one row of panels per problem."""
    solvers = list(next(iter(next(iter(found.curves.values())).values())))
    axes = grid(figure, len(solvers) * len(found.curves), columns=len(solvers), height=2.6)
    rows = axes.reshape(-1, len(solvers))
    for (title, lines), row in zip(found.curves.items(), rows, strict=True):
        for axis, method in zip(row, solvers, strict=True):
            for k, (contender, by_solver) in enumerate(lines.items()):
                points = sorted(by_solver.get(method, []))
                style = "--" if contender.startswith("gradient") else "-"
                xs, ys = [x for x, _ in points], [y for _, y in points]
                color = PALETTE[k % len(PALETTE)]
                axis.loglog(xs, ys, style, marker="o", ms=3, color=color, label=contender)
            if method != "dopri5":
                grades = sorted({x for by in lines.values() for x, _ in by.get(method, [])})
                ticks(axis, grades, [grade_text(method, x) for x in grades])
            axis.minorticks_off()
            clean(axis, "tolerance" if method == "dopri5" else "step", "", f"{title}\n{method}")
            axis.sharey(row[0]) if axis is not row[0] else None
        row[0].set_ylabel("relative error")
    legend(figure, 3, "lower")


DERIVATIVE_ERRORS = measured_item(
    "adj2-error",
    ("table:adj2-error",),
    "Errors of first and second derivatives",
    measurements,
    result,
    draw,
    caption="Relative errors by step size or tolerance, one row per field: lower is better. "
    "Dashed lines are gradients, solid lines products with the Hessian or Gauss-Newton matrix.",
)
