"""Draw what was measured, and write the tables of docs/benchmarks.md.

``engine.png`` (time as a ratio to torchdiffeq), ``accuracy.png`` (gradient error) and
``memory.png`` (peak memory against steps) go beside the JSON files, from which every figure of the
page comes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.files import (
    DOCS,
    RESULTS,
    WORKLOADS,
    label,
    put,
    read,
    spread,
    surroundings,
)
from snopt.lab.paper.curves import clean
from snopt.lab.table import markdown

Measured = dict[str, Any]
TARGETS = {
    ("image", "plain"): {"snopt_checkpoint": 0.60},
    ("ode_rnn", "plain"): {"snopt_checkpoint": 0.25, "snopt_compiled": 0.08},
    ("cnf_miniboone", "autograd"): {"snopt_checkpoint": 0.42},
    ("cnf_gas", "autograd"): {"snopt_checkpoint": 0.65},
}
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


def with_part(engine: Measured, part: str) -> list[tuple[str, str, Measured]]:
    """List ``(case, form, contenders)`` of what a part was measured on, in a fixed order."""
    return [
        (case, form, engine[case][form][part]["contenders"])
        for case in WORKLOADS
        for form in sorted(engine.get(case, {}))
        if part in engine[case][form]
    ]


# ------------------------------------------------------------------------------------- tables


def time_table(engine: Measured) -> str:
    """Tabulate seconds and ratios to torchdiffeq's ``odeint_adjoint``."""
    rows = []
    for case, form, contenders in with_part(engine, "time"):
        for name, figures in contenders.items():
            target, ratio = TARGETS.get((case, form), {}).get(name), figures["ratio"]
            seconds = f"{figures['seconds']['median']:.3f}"
            goal = f"{target:.2f}" if target else ""
            digits = 3 if ratio["median"] < 0.1 else 2
            rows.append([label(case, form), f"`{name}`", seconds, spread(ratio, digits), goal])
    return markdown(["workload", "contender", "seconds", "ratio (quartiles)", "goal"], rows)


def by_contender(engine: Measured, part: str, cell: Callable[[Measured], str]) -> str:
    """Tabulate a part, a column a contender."""
    found = with_part(engine, part)
    names = list(dict.fromkeys(name for *_, figures in found for name in figures))
    rows = [
        [label(case, form), *(cell(figures[n]) if n in figures else "–" for n in names)]
        for case, form, figures in found
    ]
    return markdown(["workload", *(f"`{name}`" for name in names)], rows)


def growth_table(memory: Measured) -> str:
    """Tabulate peak megabytes of each adjoint against the number of steps."""
    rows = [
        [f"`{name}`", *(f"{value:.1f}" for value in values)]
        for name, values in memory["megabytes"].items()
    ]
    return markdown(["adjoint", *(f"{steps} steps" for steps in memory["steps"])], rows)


def tables(engine: Measured, memory: Measured) -> dict[str, str]:
    """The tables of the page by their places in it."""
    case, form, _ = with_part(engine, "time")[0]
    return {
        "time": time_table(engine),
        "work": by_contender(engine, "work", lambda f: f"{f['forward']} + {f['backward']}"),
        "accuracy": by_contender(
            engine, "accuracy", lambda f: f"{f['parameters']:.1e} / {f['inputs']:.1e}"
        ),
        "memory": by_contender(engine, "memory", lambda f: f"{f['megabytes']:.0f}"),
        "growth": growth_table(memory),
        "environment": surroundings(engine[case][form]["time"]["environment"]),
    }


# ------------------------------------------------------------------------------------ figures


def bars(axes: Axes, engine: Measured, part: str, value: str) -> None:
    """Draw a bar a contender and workload; quartiles where there are rounds."""
    found = with_part(engine, part)
    present = {name for *_, contenders in found for name in contenders}
    names = [name for name in COLOURS if name in present]
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        for where, (*_, contenders) in enumerate(found):
            if name not in contenders:
                continue
            figure = contenders[name][value]
            spreads = isinstance(figure, dict)
            height = figure["median"] if spreads else figure
            place = where + (i - (len(names) - 1) / 2) * width
            axes.bar(place, height, width, color=COLOURS[name], label=name if where == 0 else None)
            if spreads:
                ends = [[height - figure["lower"]], [figure["upper"] - height]]
                axes.errorbar(place, height, ends, color="black", linewidth=0.8)
                top = (place, figure["upper"])
                axes.annotate(f"{height:.2f}", top, ha="center", va="bottom", fontsize=7)
    places = [f"{case}\n{'' if form == 'plain' else form}" for case, form, _ in found]
    axes.set_xticks(range(len(found)), places)
    axes.legend(fontsize=8, frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.12))


def draw(name: str, size: tuple[float, float], paint: Callable[[Axes], None]) -> None:
    """Make a figure of one panel."""
    figure = Figure(figsize=size, layout="constrained")
    paint(figure.subplots())
    figure.savefig(RESULTS / f"{name}.png", dpi=130)


def figures(engine: Measured, memory: Measured) -> None:
    """Draw the three figures."""

    def time(axes: Axes) -> None:
        title = "Forward plus backward time (median of rounds, quartiles; lower is faster)"
        clean(axes, "", "time / torchdiffeq odeint_adjoint", title)
        bars(axes, engine, "time", "ratio")
        axes.axhline(1.0, color="#8c8c8c", linewidth=0.8)

    def accuracy(axes: Axes) -> None:
        title = "Gradient error against a float64 reference (its own error: reference)"
        clean(axes, "", "relative error of the parameters' gradient", title)
        bars(axes, engine, "accuracy", "parameters")
        axes.set_yscale("log")

    def growth(axes: Axes) -> None:
        for name, megabytes in memory["megabytes"].items():
            style = "--" if name.startswith("torchdiffeq") else "-"
            axes.plot(
                memory["steps"], megabytes, style, marker="o", color=COLOURS[name], label=name
            )
        clean(axes, "steps", "peak memory, MB", "Memory of one gradient, 128 × 256 state")
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(memory["steps"], [str(steps) for steps in memory["steps"]])
        axes.minorticks_off()
        axes.legend(fontsize=8, frameon=False)

    draw("engine", (10, 4.5), time)
    draw("accuracy", (10, 4.5), accuracy)
    draw("memory", (7, 4.5), growth)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--page", type=Path, default=DOCS / "peers.md")


def main(chosen: argparse.Namespace) -> None:
    """Draw and write; both measurements have to be there."""
    engine, memory = read(RESULTS / "engine.json"), read(RESULTS / "memory.json")
    missing = [name for name, found in (("measure", engine), ("memory", memory)) if not found]
    if missing:
        raise SystemExit(f"nothing to show yet: run python -m benchmarks.engine {missing[0]}")
    figures(engine, memory)
    put(chosen.page, tables(engine, memory))
