"""Peak memory of second-order methods as the problem grows (the paper's Table 2).

The item ``memory-comp`` of ``snopt paper`` with more methods, and with a second figure per point:
beside the peak of live tensors, how far a fresh process grows while it computes derivatives once,
less what the same method takes on a tiny problem. The second contains memory that the
allocator keeps.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.files import RESULTS, environment, read, save_figure, write
from snopt.lab.paper.growth import AXES, METHODS, Size
from snopt.lab.paper.items.storage import GROWING, ROWS, draw_growth, exponent, measure
from snopt.lab.paper.peak import in_fresh_process, rise
from snopt.lab.paper.published import published

TINY = Size(4, 2, 1, 2)


def peak(method: str, size: Size) -> float:
    """Measure, in this process, how far it grows."""
    return rise(partial(METHODS[method], size))


def measure_both(axis: str, method: str, tiny: float, most: int | None) -> dict[str, Any]:
    """Measure along an axis: megabytes of the process and of live tensors, and their exponents."""
    sizes = AXES[axis][method][:most]
    points = [
        {
            "x": point["x"],
            "tensors": round(point["megabytes"], 3),
            "process": round(in_fresh_process(peak, method, size) - tiny, 3),
            **{name: size.along(name) for name in AXES},
        }
        for size, point in zip(sizes, measure(axis, {method: sizes})[method], strict=True)
    ]
    paper = published("table:memory-comp").value(
        ROWS.get(method, ""), f"storage in {GROWING[axis]}"
    )
    found = {"points": points, "claimed": paper and paper.value, "tiny_process": round(tiny, 3)}
    for key in ("tensors", "process"):
        found[f"{key}_exponent"] = round(exponent(points, key), 3)
        print(f"{axis:6} {method:22} {key:8} exponent {found[f'{key}_exponent']:5.2f}")
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=AXES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--sizes", type=int, help="number of sizes per axis; at least two")
    parser.add_argument("--out", type=Path, default=RESULTS / "second_order_memory.json")
    parser.add_argument("--plot", action="store_true", help="only draw the stored results")


def main(chosen: argparse.Namespace) -> None:
    """Measure along the axes, or draw."""
    kept = read(chosen.out) or {"axes": {}}
    if chosen.plot:
        save_figure(chosen.out.with_suffix(".png"), partial(draw, kept=kept))
        return
    tiny: dict[str, float] = {}
    for axis in chosen.axes:
        for method in (method for method in AXES[axis] if method in chosen.methods):
            if method not in tiny:
                tiny[method] = in_fresh_process(peak, method, TINY)
            found = measure_both(axis, method, tiny[method], chosen.sizes)
            kept["axes"].setdefault(axis, {})[method] = found
            write(chosen.out, {**kept, "environment": environment()})


def draw(figure: Any, kept: dict[str, Any]) -> None:
    """Draw megabytes over each axis: tensors as lines, processes as dots."""
    figure.set_size_inches(15, 4.2)
    panels = figure.subplots(1, len(kept["axes"]), squeeze=False)[0]
    for panel, (axis, methods) in zip(panels, kept["axes"].items(), strict=True):
        points = {method: found["points"] for method, found in methods.items()}
        draw_growth(panel, axis, points, tensors="o-", process=":")
        panel.legend(fontsize=8)
    panels[0].set_ylabel("peak memory, MB: tensors (line), process (dots)")
