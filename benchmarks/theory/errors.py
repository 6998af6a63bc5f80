"""Errors of first and second derivatives through a solve, side by side (the paper's Table 1).

The item ``adj2-error`` of ``snopt paper`` on more methods, problems and step sizes. The truth is
autograd through a dopri8 solve at tolerance 1e-12, in double precision.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.files import RESULTS, environment, read, save_figure, write
from snopt.lab.paper.derivatives import measure_errors
from snopt.lab.paper.item import Result
from snopt.lab.paper.items.derivative_errors import draw
from snopt.lab.paper.problems import CASES

#: Step sizes of the fixed-step methods, tolerances of dopri5.
GRADES: dict[str, list[float]] = {
    "rk4": [1 / 4, 1 / 8, 1 / 16, 1 / 32],
    "implicit_adams": [1 / 8, 1 / 16, 1 / 32, 1 / 64],
    "dopri5": [1e-2, 1e-3, 1e-4, 1e-6],
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--methods", nargs="+", default=list(GRADES), choices=GRADES)
    parser.add_argument("--coarsest", action="store_true", help="one grade per method")
    parser.add_argument("--out", type=Path, default=RESULTS / "second_order_error.json")
    parser.add_argument("--plot", action="store_true", help="only draw the stored results")


def main(chosen: argparse.Namespace) -> None:
    """Measure case by case, or draw."""
    kept = read(chosen.out) or {"cases": {}}
    if chosen.plot:
        save_figure(chosen.out.with_suffix(".png"), partial(draw, found=pictured(kept["cases"])))
        return
    grades = {name: GRADES[name][: 1 if chosen.coarsest else None] for name in chosen.methods}
    for case in chosen.cases:
        found = measure_errors(CASES[case], grades, tell=partial(print, f"{case:8}", flush=True))
        old = kept["cases"].get(case, found)
        kept["cases"][case] = {**found, "methods": {**old["methods"], **found["methods"]}}
        write(chosen.out, {**kept, "environment": environment()})


def pictured(cases: dict[str, Any]) -> Result:
    """Arrange the stored errors as the item's figure expects them."""
    curves: dict[str, Any] = {}
    for case, found in cases.items():
        lines = curves.setdefault(f"{case} (m={found['m']}, n={found['n']})", {})
        for method, rows in found["methods"].items():
            for name, points in rows.items():
                lines.setdefault(name, {})[method] = [[p["grade"], p["error"]] for p in points]
    return Result([], [], curves)
