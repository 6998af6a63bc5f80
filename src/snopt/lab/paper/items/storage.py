"""Growth of storage with state, parameters, rank and depth: exponents beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from snopt.lab.config import Scale
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.curves import clean, end_labels, grid, ticks
from snopt.lab.paper.growth import AXES, METHODS, PAPER, Size, slope
from snopt.lab.paper.item import Cell, Result, Space, Table, measured_item
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.peak import peak_megabytes
from snopt.lab.paper.published import published

ROWS = dict(zip(PAPER, ("theorem1", "proposition2", "snopt", "adjoint"), strict=True))
"""Rows of the paper's table."""
COLORS = dict(zip(PAPER, (PALETTE[6], PALETTE[2], PALETTE[0], PALETTE[3]), strict=True))
GROWING = {"m": "m", "n": "n", "R": "R", "steps": "depth"}
"""The axes with the paper's words."""
TITLES = {
    "m": "size of the state, m",
    "n": "number of parameters, n",
    "R": "rank R",
    "steps": "number of steps",
}
SMOKE_SIZES = 2
CODE = (
    "base", "ode", "adjoint", "second_order", "kronecker", "optim", "lab/paper/growth.py",
    "lab/paper/peak.py",
)  # fmt: skip


def sizes_of(axis: str, scale: Scale) -> dict[str, list[Size]]:
    """Return the sizes to measure along an axis, the first two at scale ``smoke``."""
    most = SMOKE_SIZES if scale == "smoke" else None
    return {method: AXES[axis][method][:most] for method in PAPER if method in AXES[axis]}


def measure(axis: str, sizes: Mapping[str, list[Size]]) -> dict[str, Any]:
    """Measure the peak of live tensors along an axis."""
    return {
        method: [
            {"x": size.along(axis), "megabytes": peak_megabytes(partial(METHODS[method], size))}
            for size in of_method
        ]
        for method, of_method in sizes.items()
    }


def measurements(space: Space) -> dict[str, Measurement]:
    """Return a job per axis."""
    made = {}
    for axis in GROWING:
        sizes = sizes_of(axis, space.scale)
        folder = space.measurement(f"memory-comp-{axis}")
        made[axis] = Measurement(folder, partial(measure, axis, sizes), sizes, CODE)
    return made


def exponent(points: list[dict[str, float]]) -> float:
    """Fit the exponent of points."""
    return slope([p["x"] for p in points], [p["megabytes"] for p in points])


def result(space: Space, curves: dict[str, Any]) -> Result:
    """Fit the exponents."""
    paper = published("table:memory-comp")
    rows: list[list[Cell]] = []
    for method, row in ROWS.items():
        cells: list[Cell] = []
        for axis, word in GROWING.items():
            points = curves[axis].get(method)
            cells += [points and f"{exponent(points):.2f}", paper.text(row, f"storage in {word}")]
        rows.append([method, *cells])
    heads = [head for word in GROWING.values() for head in (word, f"{word}, paper")]
    caption = (
        "Backward storage as a power of state m, parameters n, rank R and depth (steps); the "
        f"paper's powers are read off the formulas of Table {paper.number}."
    )
    notes = [
        "Peak bytes of live tensors; the slope of a line through the logarithms. "
        "linear -> tanh -> linear in double precision, rk4.",
        "SNOpt sends further factors through passes of their own, so R does not enter its peak; "
        "the paper counts R m.",
        *([f"Only {SMOKE_SIZES} sizes per axis."] * (space.scale == "smoke")),
    ]
    return Result([Table(caption, ["method", *heads], rows)], notes, curves)


def draw(figure: Any, found: Result) -> None:
    """Draw megabytes over each axis, with the fitted powers beside the lines."""
    panels = grid(figure, len(found.curves), columns=2, height=2.7)[0]
    for panel, (axis, methods) in zip(panels, found.curves.items(), strict=True):
        ends = {}
        for method, points in methods.items():
            xs, ys = [p["x"] for p in points], [p["megabytes"] for p in points]
            width = 2.6 if method == "SNOpt" else 1.2  # visible below the first-order adjoint
            panel.loglog(xs, ys, "o-", ms=3, linewidth=width, color=COLORS[method])
            ends[f"{method}: {exponent(points):.1f}"] = xs[-1], ys[-1], COLORS[method]
        if axis in ("R", "steps"):
            ticks(panel, [point["x"] for points in methods.values() for point in points])
        low, high = panel.get_ylim()
        marks = [x for x in (5, 10, 20, 30, 50, 100, 200) if low < x < high]
        panel.set_yticks(marks, [f"{x}" for x in marks])
        panel.minorticks_off()
        clean(panel, TITLES[axis], "MB")
        end_labels(panel, ends, [name for name in ends if name.startswith("SNOpt")])


STORAGE = measured_item(
    "memory-comp",
    ("table:memory-comp",),
    "Growth of storage",
    measurements,
    result,
    draw,
    caption="Peak memory of the backward pass; the number beside a name is the slope, that is the "
    "power. Only Theorem 1 grows with the square of m and n, and no method with the number of "
    "steps. Each method is measured where the quantity on the x axis dominates: compare slopes, "
    "not heights.",
)
