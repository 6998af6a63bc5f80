"""Draw the two figures of docs/peers.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.files import save_figure
from snopt.lab.paper.curves import bars, clean, ticks

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
    """Draw a panel for every part that was measured; return whether there was one."""
    panels: list[tuple[Bars, str, str]] = []
    if found := peers.get("engines"):
        seconds = engine_bars(found, lambda figures: figures["both"]["median"])
        error = engine_bars(found, lambda figures: figures["error"]["parameters"])
        panels.append((seconds, "Loss and gradient", "seconds"))
        panels.append((error, "Error of the parameters' gradient", "relative error"))
    if found := peers.get("memory"):
        megabytes = {case: each["megabytes"] for case, each in found.items()}
        panels.append((megabytes, "Memory of an iteration", "MB"))
    if found := peers.get("targets"):
        panels.append((target_bars(found), "Time to a test accuracy", "seconds"))
    panels = [panel for panel in panels if any(panel[0].values())]

    def draw(figure: Any) -> None:
        figure.set_size_inches(10, 3.6 * len(panels))
        rows = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, (heights, title, unit) in zip(rows, panels, strict=True):
            bars(axes, heights, COLOURS)
            axes.set_yscale("log")
            axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
            clean(axes, "", unit, title)

    if panels:
        save_figure(file, draw)
    return bool(panels)


def draw_growth(grown: Measured, file: Path) -> None:
    """Draw time and memory of one iteration against each size."""

    def draw(figure: Any) -> None:
        figure.set_size_inches(3.2 * len(grown["axes"]), 6)
        panels = figure.subplots(2, len(grown["axes"]), squeeze=False)
        for column, (axis, found) in zip(panels.T, grown["axes"].items(), strict=True):
            for panel, key in zip(column, ("milliseconds", "megabytes"), strict=True):
                for name, figures in found["contenders"].items():
                    color = COLOURS[name]
                    panel.loglog(found["sizes"], figures[key], "o-", color=color, label=name)
                ticks(panel, found["sizes"])
                clean(panel, axis, key)
        panels[0, 0].legend(fontsize=7, frameon=False)

    save_figure(file, draw)
