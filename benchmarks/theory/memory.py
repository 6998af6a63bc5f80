"""Peak memory of second-order methods as the problem grows (the paper's Table 2).

The item ``memory-comp`` of ``snopt paper`` with more methods.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.files import RESULTS, keep
from snopt.lab.paper.growth import AXES, METHODS
from snopt.lab.paper.items.storage import exponent, measure


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=AXES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--sizes", type=int, help="number of sizes per axis; at least two")
    parser.add_argument("--out", type=Path, default=RESULTS / "second_order_memory.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure along the axes; print and store the exponents."""
    for axis in chosen.axes:
        for method in (method for method in AXES[axis] if method in chosen.methods):
            points = measure(axis, {method: AXES[axis][method][: chosen.sizes]})[method]
            found = {"points": points, "exponent": round(exponent(points), 3)}
            print(f"{axis:6} {method:22} exponent {found['exponent']:5.2f}", flush=True)
            keep(chosen.out, found, "axes", axis, method)
