"""The README's picture, drawn from the results of ``snopt paper convergence``."""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.files import DOCS
from snopt.lab.paper.curves import clean, plot
from snopt.lab.paper.page import read_result

TASKS = {"MNIST": "MNIST", "CIFAR10": "CIFAR-10 (a fifth of its training images)"}
COLORS = {"SNOpt (default)": "#0072b2", "Adam": "#d55e00", "SGD": "#6b7280"}
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
        for method, color in COLORS.items():
            curve = found.curves[task][method][QUANTITY]
            plot(axis, curve, "seconds", color=color, label=method.removesuffix(" (default)"))
        clean(axis, "seconds of training, one CPU core", QUANTITY, title)
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(chosen.out, dpi=140)
