"""Draw the results, and write the tables of docs/peers.md.

``engine.png`` (time as a ratio to torchdiffeq), ``accuracy.png`` (gradient error) and
``memory.png`` (peak memory against steps) go beside the JSON files, from which every figure of the
page comes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.files import (
    DOCS,
    RESULTS,
    WORKLOADS,
    label,
    put,
    read,
    save_figure,
    spread,
    surroundings,
)
from snopt.lab.paper.curves import bars, clean, ticks
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
    """Return ``(case, form, contenders)`` of the workloads of a part, in a fixed order."""
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
    """Tabulate a part, one column per contender."""
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
    """Return the tables of the page by their places in it."""
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


def limit_table(limit: Measured) -> str:
    """Tabulate the engine's time over its lower bounds."""
    rows = [
        [label(case, found["form"]), f"`{name}`", f"`{bound}`", spread(ratio), str(found["rounds"]),
         f"{found['goals'][name]:.2f}" if name in found["goals"] else "–"]
        for case, found in limit.items()
        for name, bounds in found["over"].items()
        for bound, ratio in bounds.items()
    ]  # fmt: skip
    return markdown(["workload", "time of", "over", "ratio (quartiles)", "rounds", "goal"], rows)


def tradeoff_table(tradeoff: Measured) -> str:
    """Tabulate time and memory of adjoints as ratios to the default."""
    rows = [
        [label(case, found["form"]), f"`{name}`", spread(each["time"]), str(each["rounds"]),
         f"{each['memory']:.2f}", f"{each['megabytes']:.0f}",
         "{} + {}".format(*each["evaluations"])]
        for case, found in tradeoff.items()
        for name, each in found["contenders"].items()
    ]  # fmt: skip
    head = ["workload", "adjoint", "time (quartiles)", "rounds", "memory", "MB", "evaluations"]
    return markdown(head, rows)


# ------------------------------------------------------------------------------------ figures


def drawn(axes: Any, engine: Measured, part: str, value: str) -> None:
    """Draw a bar per contender and workload; quartiles where there are rounds."""
    found = with_part(engine, part)
    figures = {
        f"{case}\n{'' if form == 'plain' else form}": {n: c[value] for n, c in contenders.items()}
        for case, form, contenders in found
    }
    heights = {
        place: {n: v["median"] if isinstance(v, dict) else v for n, v in of.items()}
        for place, of in figures.items()
    }
    bars(axes, heights, COLOURS)
    for container in axes.containers:
        for bar, of in zip(container, figures.values(), strict=True):
            spread = of.get(container.get_label())
            if isinstance(spread, dict):
                place, middle = bar.get_x() + bar.get_width() / 2, spread["median"]
                ends = [[middle - spread["lower"]], [spread["upper"] - middle]]
                axes.errorbar(place, middle, ends, color="black", linewidth=0.8)
                top = (place, spread["upper"])
                axes.annotate(f"{middle:.2f}", top, ha="center", va="bottom", fontsize=7)
    axes.legend(fontsize=8, frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.12))


def figures(engine: Measured, memory: Measured) -> None:
    """Draw the three figures."""

    def time(figure: Any) -> None:
        figure.set_size_inches(10, 4.5)
        axes = figure.subplots()
        drawn(axes, engine, "time", "ratio")
        axes.axhline(1.0, color="#8c8c8c", linewidth=0.8)
        title = "Forward plus backward time (median of rounds, quartiles; lower is faster)"
        clean(axes, "", "time / torchdiffeq odeint_adjoint", title)

    def accuracy(figure: Any) -> None:
        figure.set_size_inches(10, 4.5)
        axes = figure.subplots()
        drawn(axes, engine, "accuracy", "parameters")
        axes.set_yscale("log")
        title = "Gradient error against a float64 reference (its own error: reference)"
        clean(axes, "", "relative error of the parameters' gradient", title)

    def growth(figure: Any) -> None:
        figure.set_size_inches(7, 4.5)
        axes = figure.subplots()
        for name, megabytes in memory["megabytes"].items():
            style = "o--" if name.startswith("torchdiffeq") else "o-"
            axes.loglog(memory["steps"], megabytes, style, color=COLOURS[name], label=name)
        ticks(axes, memory["steps"])
        axes.legend(fontsize=8, frameon=False)
        clean(axes, "steps", "peak memory, MB", "Memory of one gradient, 128 × 256 state")

    for name, draw in {"engine": time, "accuracy": accuracy, "memory": growth}.items():
        save_figure(RESULTS / f"{name}.png", draw, dpi=130)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--page", type=Path, default=DOCS / "peers.md")


def main(chosen: argparse.Namespace) -> None:
    """Draw and write; all measurements must exist."""
    engine, memory = read(RESULTS / "engine.json"), read(RESULTS / "memory.json")
    limit, tradeoff = read(RESULTS / "limit.json"), read(RESULTS / "tradeoff.json")
    needed = {"measure": engine, "memory": memory, "limit": limit, "tradeoff": tradeoff}
    missing = [name for name, found in needed.items() if not found]
    if missing:
        raise SystemExit(f"nothing to show yet: run python -m benchmarks.engine {missing[0]}")
    figures(engine, memory)
    more = {"limit": limit_table(limit), "tradeoff": tradeoff_table(tradeoff)}
    put(chosen.page, {**tables(engine, memory), **more})
