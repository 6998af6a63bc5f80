"""Draw the two figures of docs/peers.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Measured = dict[str, Any]
Bars = dict[str, dict[str, float]]
"""Heights by group, then by name."""

COLOURS = {
    "snopt_checkpoint": "#1f77b4",
    "snopt_compiled": "#d62728",
    "torchdiffeq_adjoint": "#8c8c8c",
    "torchdiffeq_direct": "#c4c4c4",
    "torchode_autodiff": "#9467bd",
    "torchode_compiled": "#c5b0d5",
    "torchdyn_adjoint": "#2ca02c",
    "torchdyn_autograd": "#98df8a",
    "diffrax_checkpoint": "#ff7f0e",
    "diffrax_backsolve": "#ffbb78",
    "snopt": "#1f77b4",
    "snopt_refresh": "#aec7e8",
    "adam": "#8c8c8c",
    "torchdiffeq_adam": "#c4c4c4",
    "muon": "#2ca02c",
    "soap": "#9467bd",
    "singd": "#e377c2",
    "optax": "#ff7f0e",
}


def _bars(axes: Axes, heights: Bars, title: str, unit: str) -> None:
    present = {name for group in heights.values() for name in group}
    names = [name for name in COLOURS if name in present]
    width = 0.85 / max(len(names), 1)
    for i, name in enumerate(names):
        places = [j + (i - (len(names) - 1) / 2) * width for j in range(len(heights))]
        values = [group.get(name, float("nan")) for group in heights.values()]
        axes.bar(places, values, width, color=COLOURS[name], label=name)
    axes.set_xticks(range(len(heights)), list(heights))
    axes.set(title=title, ylabel=unit, yscale="log")
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.spines[["top", "right"]].set_visible(False)


def engine_bars(measured: Measured, value: Callable[[Measured], float]) -> Bars:
    """Heights of those engines of each workload that have the value."""
    return {
        case: {name: value(figures) for name, figures in found["contenders"].items()}
        for case, found in measured.items()
    }


def target_bars(measured: Measured) -> Bars:
    """Seconds to each accuracy, by task and level."""
    heights: Bars = {}
    for task, found in measured.items():
        for name, figures in found["contenders"].items():
            for level, there in figures["targets"].items():
                if there["seconds"] is not None:
                    heights.setdefault(f"{task}, {level} %", {})[name] = there["seconds"]
    return heights


def draw_peers(peers: Measured, file: Path) -> bool:
    """Draw a panel for every part that was measured; tell whether there was one."""
    panels: list[tuple[Bars, str, str]] = []
    if peers.get("engines"):
        found = peers["engines"]
        seconds = engine_bars(found, lambda figures: figures["both"]["median"])
        error = engine_bars(found, lambda figures: figures["error"]["parameters"])
        panels.append((seconds, "Loss and gradient", "seconds"))
        panels.append((error, "Error of the parameters' gradient", "relative error"))
    if peers.get("memory"):
        megabytes = {case: found["megabytes"] for case, found in peers["memory"].items()}
        panels.append((megabytes, "Memory of an iteration", "MB"))
    if peers.get("targets"):
        panels.append((target_bars(peers["targets"]), "Time to a test accuracy", "seconds"))
    panels = [panel for panel in panels if any(panel[0].values())]
    if not panels:
        return False
    figure = Figure(figsize=(10, 3.6 * len(panels)), layout="constrained")
    rows = figure.subplots(len(panels), squeeze=False)
    for axes, panel in zip(rows[:, 0], panels, strict=True):
        _bars(axes, *panel)
    figure.savefig(file, dpi=110)
    return True


def draw_growth(grown: Measured, file: Path) -> None:
    """Draw time and memory of one iteration against each size."""
    axes_found = grown["axes"]
    figure = Figure(figsize=(3.2 * len(axes_found), 6), layout="constrained")
    panels = figure.subplots(2, len(axes_found), squeeze=False)
    for column, (axis, found) in enumerate(axes_found.items()):
        for row, key in enumerate(("milliseconds", "megabytes")):
            panel = panels[row, column]
            for name, figures in found["contenders"].items():
                panel.plot(
                    found["sizes"], figures[key], marker="o", color=COLOURS[name], label=name
                )
            panel.set(xscale="log", yscale="log", xlabel=axis, ylabel=key)
            panel.set_xticks(found["sizes"], [str(size) for size in found["sizes"]])
            panel.minorticks_off()
            panel.spines[["top", "right"]].set_visible(False)
    panels[0, 0].legend(fontsize=7, frameon=False)
    figure.savefig(file, dpi=110)
