"""How storage grows with state, parameters, rank and depth: exponents beside the paper's."""

from __future__ import annotations

from functools import partial
from typing import Any

from snopt.lab.config import Scale
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.curves import clean, legend
from snopt.lab.paper.growth import AXES, METHODS, Size, slope
from snopt.lab.paper.item import Cell, Item, Result, Space, Table
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.live_tensors import peak_megabytes
from snopt.lab.paper.published import published

__all__ = ["STORAGE"]

ROWS = {
    "Theorem 1": "theorem1",
    "Proposition 2": "proposition2",
    "SNOpt": "snopt",
    "first-order adjoint": "adjoint",
}
"""Methods of the paper's table, by the names of :mod:`snopt.lab.paper.growth`."""
GROWING = {"m": "m", "n": "n", "R": "R", "steps": "depth"}
"""What grows, with the paper's word for it."""
TITLES = {
    "m": "size of the state, m",
    "n": "number of parameters, n",
    "R": "rank R",
    "steps": "number of steps",
}
SMOKE_SIZES = 2


def sizes_of(axis: str, scale: Scale) -> dict[str, list[Size]]:
    """Return the sizes to measure along an axis, the first two at scale ``smoke``."""
    most = SMOKE_SIZES if scale == "smoke" else None
    return {method: AXES[axis][method][:most] for method in ROWS if method in AXES[axis]}


def measure(axis: str, scale: Scale) -> dict[str, Any]:
    """Count the bytes of live tensors along an axis."""
    return {
        method: [
            {"x": size.along(axis), "megabytes": peak_megabytes(partial(METHODS[method], size))}
            for size in sizes
        ]
        for method, sizes in sizes_of(axis, scale).items()
    }


def measurement(space: Space, axis: str) -> Measurement:
    """Return the job of one axis."""
    folder = space.measurement(f"memory-comp-{axis}")
    work = partial(measure, axis, space.scale)
    return Measurement(folder, work, sizes_of(axis, space.scale))


def result(space: Space) -> Result:
    """Fit the exponents."""
    paper = published("table:memory-comp")
    curves = {axis: measurement(space, axis).read() for axis in GROWING}
    rows: list[list[Cell]] = []
    for method, row in ROWS.items():
        cells: list[Cell] = []
        for axis, word in GROWING.items():
            points = curves[axis].get(method)
            cells += [
                points and f"{slope(*zip(*map(pair, points), strict=True)):.2f}",
                paper.text(row, f"storage in {word}"),
            ]
        rows.append([method, *cells])
    heads = [head for word in GROWING.values() for head in (word, f"{word}, paper")]
    caption = (
        "Backward storage as a power of state m, parameters n, rank R and depth (steps); the "
        f"paper's powers are read off the formulas of Table {paper.number}."
    )
    notes = [
        "The most bytes of tensors alive at one time; the slope of a line through the logarithms. "
        "linear -> tanh -> linear in double precision, rk4.",
        "SNOpt's further factors go through in passes of their own, and R does not enter its peak; "
        "the paper counts R m.",
    ]
    if space.scale == "smoke":
        notes.append(f"{SMOKE_SIZES} sizes an axis: no more than a try.")
    return Result([Table(caption, ["method", *heads], rows)], notes, curves)


def pair(point: dict[str, float]) -> tuple[float, float]:
    """Return a point as coordinates."""
    return point["x"], point["megabytes"]


def draw(figure: Any, found: Result) -> None:
    """Draw megabytes over what grows, one picture an axis."""
    figure.set_size_inches(12, 3.2)
    panels = figure.subplots(1, len(found.curves), sharey=True)
    for panel, (name, methods) in zip(panels, found.curves.items(), strict=True):
        for k, method in enumerate(ROWS):
            if method in methods:
                xs, ys = zip(*map(pair, methods[method]), strict=True)
                panel.loglog(xs, ys, "o-", ms=3, color=PALETTE[k], label=method)
        if name in ("R", "steps"):
            ticks = sorted({point["x"] for points in methods.values() for point in points})
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
        clean(panel, TITLES[name], "MB" if name == "m" else "")
    legend(figure, 4)


STORAGE = Item(
    "memory-comp",
    ("table:memory-comp",),
    "Growth of storage",
    lambda space: [measurement(space, axis) for axis in GROWING],
    result,
    draw,
)
