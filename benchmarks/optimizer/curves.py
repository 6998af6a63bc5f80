"""The README's picture, drawn from the results of ``snopt paper convergence``."""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.files import DOCS
from snopt.lab.paper.curves import clean, plot
from snopt.lab.paper.names import color_of
from snopt.lab.paper.page import read_result

TASKS = {"MNIST": "MNIST", "CIFAR10": "CIFAR-10 (a fifth of its training images)"}
METHODS = ("SNOpt (default)", "SNOpt (paper's)", "SOAP", "Muon", "Adam", "SGD")
"""Methods to draw, each at its best rate, if the results have them."""
QUANTITY = "validation accuracy"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--out", type=Path, default=DOCS / "curves.png")


def main(chosen: argparse.Namespace) -> None:
    """Draw validation accuracy against seconds, one panel per data set."""
    found = read_result(DOCS / "results" / "convergence.json")
    figure = Figure(figsize=(8.6, 2.9), layout="constrained")
    axes = figure.subplots(1, len(TASKS))
    for axis, (task, title) in zip(axes, TASKS.items(), strict=True):
        for method in (method for method in METHODS if method in found.curves[task]):
            curve = found.curves[task][method][QUANTITY]
            plot(axis, curve, "seconds", color=color_of(method), label=method)
        clean(axis, "seconds of training, one CPU core", QUANTITY, title)
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(chosen.out, dpi=140)
