"""Errors of first and second derivatives through a solve, side by side (the paper's Table 1).

The truth is autograd through a dopri8 solve at tolerance 1e-12, in double precision. An error is
the relative distance of products with the same four random vectors: of the Hessian for those
methods that compute the Hessian, of the Gauss-Newton matrix for those that compute that.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.files import RESULTS, environment, read, write
from snopt.lab.paper.curves import clean
from snopt.lab.paper.derivatives import measure_errors
from snopt.lab.paper.problems import CASES

#: Solvers by coarseness: tolerances of dopri5, steps of the fixed-step methods.
GRADES: dict[str, list[float]] = {
    "rk4": [1 / 4, 1 / 8, 1 / 16, 1 / 32],
    "implicit_adams": [1 / 8, 1 / 16, 1 / 32, 1 / 64],
    "dopri5": [1e-2, 1e-3, 1e-4, 1e-6],
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--methods", nargs="+", default=list(GRADES), choices=GRADES)
    parser.add_argument("--coarsest", action="store_true", help="one grade a method, for a try")
    parser.add_argument("--out", type=Path, default=RESULTS / "second_order_error.json")
    parser.add_argument("--plot", action="store_true", help="only the picture of what is kept")


def main(chosen: argparse.Namespace) -> None:
    """Measure case by case, or draw."""
    kept = read(chosen.out) or {"cases": {}}
    if chosen.plot:
        draw(kept, chosen.out.with_suffix(".png"))
        return
    grades = {name: GRADES[name][: 1 if chosen.coarsest else None] for name in chosen.methods}
    for case in chosen.cases:
        found = measure_errors(
            CASES[case],
            grades,
            tell=lambda line, case=case: print(f"{case:8} {line}", flush=True),
        )
        old = kept["cases"].get(case, found)
        kept["cases"][case] = {**found, "methods": {**old["methods"], **found["methods"]}}
        write(chosen.out, {**kept, "environment": environment()})


# ------------------------------------------------------------------------------------ picture

LINES = {
    "gradient, adjoint": ("0.6", "--", "gradient, adjoint"),
    "recursive adjoint": ("tab:red", "-", "Hessian, recursive adjoint"),
    "exact": ("tab:blue", "-", "Hessian, Theorem 1 exact"),
    "product, backsolve": ("tab:cyan", ":", "Hessian, product by backsolve"),
    "product, checkpoint": ("tab:green", "-", "Hessian, product by checkpoint"),
    "Theorem 1": ("tab:purple", "-", "Gauss-Newton, Theorem 1"),
}


def draw(kept: dict[str, Any], picture: Path) -> None:
    """Error over coarseness, a row of panels for each case."""
    cases = kept["cases"]
    figure = Figure(figsize=(12, 3.1 * len(cases)), layout="constrained")
    axes = figure.subplots(len(cases), 3, squeeze=False)
    for row, case in zip(axes, [case for case in CASES if case in cases], strict=True):
        found = cases[case]
        for panel, method in zip(row, GRADES, strict=True):
            for name, (colour, style, label) in LINES.items():
                points = found["methods"][method].get(name, [])
                xs, ys = [p["grade"] for p in points], [p["error"] for p in points]
                panel.loglog(xs, ys, style, color=colour, marker="o", ms=3, label=label)
            title = f"{case} (m={found['m']}, n={found['n']}), {method}"
            clean(panel, "tolerance" if method == "dopri5" else "step", title=title)
            if method != "dopri5":
                panel.set_xticks(GRADES[method], [f"1/{1 / h:.0f}" for h in GRADES[method]])
                panel.minorticks_off()
        row[0].set_ylabel("relative error")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(picture, dpi=110)
