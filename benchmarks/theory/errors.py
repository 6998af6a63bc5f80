"""Errors of first and second derivatives through a solve, side by side (the paper's Table 1).

The item ``adj2-error`` of ``snopt paper`` on more methods, problems and step sizes. The truth is
autograd through a dopri8 solve at tolerance 1e-12, in double precision.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from benchmarks.files import RESULTS, keep, read
from snopt.lab.paper.derivatives import measure_errors
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


def main(chosen: argparse.Namespace) -> None:
    """Measure case by case; results of other methods are kept."""
    grades = {name: GRADES[name][: 1 if chosen.coarsest else None] for name in chosen.methods}
    for case in chosen.cases:
        found = measure_errors(CASES[case], grades, tell=partial(print, f"{case:8}", flush=True))
        old = read(chosen.out).get("cases", {}).get(case, {"methods": {}})
        methods = {**old["methods"], **found["methods"]}
        keep(chosen.out, {**found, "methods": methods}, "cases", case)
