"""Draw the measurements: ``python -m benchmarks.plot`` reads ``results/*.json``.

Writes ``engine.png`` (time as a ratio to torchdiffeq), ``accuracy.png`` (gradient error) and
``memory.png`` (peak memory against steps) beside them, and refreshes the tables of the docs.
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks import tables

COLOURS = {
    "torchdiffeq_adjoint": "#8c8c8c",
    "torchdiffeq_direct": "#c4c4c4",
    "snopt_checkpoint": "#1f77b4",
    "snopt_backsolve": "#2ca02c",
    "snopt_compiled": "#d62728",
    "snopt_reversible": "#9467bd",
    "snopt_direct": "#17becf",
    "reference": "#e0c060",
}


def _bars(axes: Axes, part: str, value: str, spread: bool) -> None:
    found = [
        (f"{case}\n{'' if form == 'plain' else form}", parts[part]["contenders"])
        for case, form, parts in tables.workloads(tables.read("engine"))
        if part in parts
    ]
    present = {name for _, contenders in found for name in contenders}
    names = [name for name in COLOURS if name in present]
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        for where, (_, contenders) in enumerate(found):
            if name not in contenders:
                continue
            figure = contenders[name][value]
            height = figure["median"] if spread else figure
            place = where + (i - (len(names) - 1) / 2) * width
            axes.bar(place, height, width, color=COLOURS[name], label=name if where == 0 else None)
            if spread:
                ends = [[height - figure["lower"]], [figure["upper"] - height]]
                axes.errorbar(place, height, ends, color="black", linewidth=0.8)
                axes.annotate(
                    f"{height:.2f}", (place, figure["upper"]), ha="center", va="bottom", fontsize=7
                )
    axes.set_xticks(range(len(found)), [where for where, _ in found])
    axes.legend(fontsize=8, frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    axes.spines[["top", "right"]].set_visible(False)


def draw_time() -> None:
    """Draw forward plus backward time over that of ``odeint_adjoint``."""
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    _bars(axes, "time", "ratio", spread=True)
    axes.axhline(1.0, color="#8c8c8c", linewidth=0.8)
    axes.set_ylabel("time / torchdiffeq odeint_adjoint")
    axes.set_title("Forward plus backward time (median of rounds, quartiles; lower is faster)")
    figure.savefig(tables.RESULTS / "engine.png", dpi=130)
    plt.close(figure)


def draw_accuracy() -> None:
    """Draw the relative error of the parameters' gradient."""
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    _bars(axes, "accuracy", "parameters", spread=False)
    axes.set_yscale("log")
    axes.set_ylabel("relative error of the parameters' gradient")
    axes.set_title("Gradient error against a float64 reference (its own error: reference)")
    figure.savefig(tables.RESULTS / "accuracy.png", dpi=130)
    plt.close(figure)


def draw_memory() -> None:
    """Draw peak memory against the number of steps."""
    found = tables.read("memory")
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, megabytes in found["megabytes"].items():
        style = "--" if name.startswith("torchdiffeq") else "-"
        axes.plot(found["steps"], megabytes, style, marker="o", color=COLOURS[name], label=name)
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="peak memory, MB")
    axes.set_xticks(found["steps"], [str(steps) for steps in found["steps"]])
    axes.minorticks_off()
    axes.set_title("Memory of one gradient, 128 × 256 state")
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(tables.RESULTS / "memory.png", dpi=130)
    plt.close(figure)


def main() -> None:
    """Draw what has been measured."""
    if tables.read("engine"):
        draw_time()
        draw_accuracy()
    if tables.read("memory"):
        draw_memory()
    if tables.PAGE.exists():
        tables.main()


if __name__ == "__main__":
    main()
