"""The README's picture, drawn from the results of `snopt paper convergence`.

python -m benchmarks.readme_curves     # docs/results/convergence.json -> docs/curves.png
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from snopt.lab.paper.curves import clean, plot
from snopt.lab.paper.page import read_result

DOCS = Path(__file__).parents[1] / "docs"
TASKS = {"MNIST": "MNIST", "CIFAR10": "CIFAR-10 (a fifth of its training images)"}
COLORS = {"SNOpt (default)": "#0072b2", "Adam": "#d55e00", "SGD": "#6b7280"}
QUANTITY = "validation accuracy"


def main() -> None:
    """Draw validation accuracy against seconds, a panel a data set."""
    found = read_result(DOCS / "results" / "convergence.json")
    figure = Figure(figsize=(8.6, 2.9), layout="constrained")
    axes = figure.subplots(1, len(TASKS))
    for axis, (task, title) in zip(axes, TASKS.items(), strict=True):
        for method, color in COLORS.items():
            curve = found.curves[task][method][QUANTITY]
            plot(axis, curve, "seconds", color=color, label=method.removesuffix(" (default)"))
        clean(axis, "seconds of training, one CPU core", QUANTITY, title)
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    figure.savefig(DOCS / "curves.png", dpi=140)


if __name__ == "__main__":
    main()
