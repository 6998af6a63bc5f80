"""Draw the two figures of docs/peers.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.files import WORKLOADS

Measured = dict[str, Any]

BASE = "torchdiffeq_adjoint"
CLIP = 1.3
"""Ratios beyond it are written at the edge instead of drawn."""
LIBRARIES = {
    "snopt": "#0072b2",
    "diffrax": "#d55e00",
    "torchdyn": "#009e73",
    "torchode": "#b8569a",
    "torchdiffeq": "#6b7280",
}
TITLES = {
    "image": "image classifier",
    "ode_rnn": "ODE-RNN",
    "cnf_miniboone": "flow, Miniboone",
    "cnf_gas": "flow, Gas",
}


def _clean(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.tick_params(labelsize=9, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _in_order(engines: Measured) -> list[str]:
    """Return every form of every library: ours on top, torchdiffeq at the bottom."""
    names = {name for found in engines.values() for name in found["contenders"]}
    order = list(LIBRARIES)
    return sorted(names, key=lambda name: (order.index(name.partition("_")[0]), name), reverse=True)


def _dot(axes: Axes, y: int, name: str, seconds: Measured | None, base: float) -> None:
    library = name.partition("_")[0]
    colour, own = LIBRARIES[library], library == "snopt"
    weight = "bold" if own else "normal"
    if seconds is None:
        axes.text(0.02, y, "not measured", va="center", fontsize=8, color="#9aa3ae")
        return
    middle, low, high = (seconds[key] / base for key in ("median", "lower", "upper"))
    if middle > CLIP:
        axes.text(CLIP, y, f"{middle:.1f} →", ha="right", va="center", fontsize=9, color=colour)
        return
    axes.plot([low, high], [y, y], color=colour, linewidth=3, alpha=0.35, solid_capstyle="round")
    axes.plot(middle, y, "o", color=colour, markersize=8 if own else 6)
    axes.annotate(
        f"{middle:.2f}", (max(high, middle), y), xytext=(6, 0), textcoords="offset points",
        fontsize=9, va="center", color=colour, fontweight=weight,
    )  # fmt: skip


def draw_peers(engines: Measured, file: Path) -> None:
    """Draw loss and gradient over torchdiffeq's adjoint: a panel per workload, a row per form."""
    cases = [case for case in WORKLOADS if case in engines]
    names = _in_order(engines)
    size = (1.8 + 2.4 * len(cases), 0.8 + 0.32 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(cases), squeeze=False, sharey=True)[0]
    for axes, case in zip(panels, cases, strict=True):
        found = engines[case]["contenders"]
        base = found[BASE]["both"]["median"]
        axes.axvline(1.0, color="#b8c0ca", linewidth=1, linestyle="--")
        for y, name in enumerate(names):
            _dot(axes, y, name, found[name]["both"] if name in found else None, base)
        axes.set(xlim=(0, CLIP), ylim=(-0.6, len(names) - 0.4), xticks=[0, 0.5, 1])
        axes.grid(axis="y", color="#eef0f3")
        axes.set_axisbelow(True)
        _clean(axes, TITLES[case])
    panels[0].set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    for tick, name in zip(panels[0].get_yticklabels(), names, strict=True):
        tick.set_color(LIBRARIES[name.partition("_")[0]])
        tick.set_fontweight("bold" if name.startswith("snopt") else "normal")
    figure.supxlabel(
        "seconds of loss and gradient, torchdiffeq's adjoint = 1; left is faster", fontsize=9
    )
    figure.savefig(file, dpi=120)


CURVES = {
    "snopt": ("#0072b2", "SNOpt"),
    "snopt_refresh": ("#3c9bd6", "SNOpt, refresh\niteration"),
    "torchdiffeq_adam": ("#6b7280", "Adam on\ntorchdiffeq"),
}
UNITS = {"milliseconds": "time / Adam's", "megabytes": "memory / Adam's"}


def draw_growth(grown: Measured, file: Path) -> None:
    """Draw time and memory of one iteration over those of Adam, against each size."""
    axes_found = grown["axes"]
    figure = Figure(figsize=(11.5, 5.2), layout="constrained")
    panels = figure.subplots(2, len(axes_found), squeeze=False, sharey="row")
    for row, (key, unit) in enumerate(UNITS.items()):
        for panel, (axis, found) in zip(panels[row], axes_found.items(), strict=True):
            _growth_panel(panel, found, key)
            _clean(panel, f"growing {axis}" if row == 0 else "")
        highest = max(
            max(ratios) for found in axes_found.values() for ratios in _ratios(found, key).values()
        )
        panels[row, 0].set(ylim=(0, 1.1 * highest))
        panels[row, 0].set_ylabel(unit, fontsize=9)
        _label_ends(panels[row, -1], *list(axes_found.values())[-1:], key)
    figure.savefig(file, dpi=110)


def _ratios(found: Measured, key: str) -> dict[str, list[float]]:
    """Return the curves over Adam's, by name."""
    measured = found["contenders"]
    return {
        name: [a / b for a, b in zip(measured[name][key], measured["adam"][key], strict=True)]
        for name in CURVES
        if name in measured
    }


def _growth_panel(panel: Axes, found: Measured, key: str) -> None:
    panel.axhline(1.0, color="#d55e00", linewidth=1, linestyle="--")
    sizes = range(len(found["sizes"]))
    for name, ratios in _ratios(found, key).items():
        panel.plot(sizes, ratios, "o-", color=CURVES[name][0], markersize=5)
    panel.set_xticks(sizes, [str(size) for size in found["sizes"]])
    panel.grid(axis="y", color="#eef0f3")


def _label_ends(panel: Axes, found: Measured, key: str) -> None:
    """Write the names beside the last points, moved apart where they would overlap."""
    ends = [(ratios[-1], *CURVES[name]) for name, ratios in _ratios(found, key).items()]
    gap, lowest = 0.13 * panel.get_ylim()[1], 0.0
    for y, colour, text in sorted([*ends, (1.0, "#d55e00", "Adam = 1")]):
        lowest = max(y, lowest)
        panel.annotate(
            text, (len(found["sizes"]) - 1, lowest), xytext=(10, 0), textcoords="offset points",
            color=colour, fontsize=9, va="center", annotation_clip=False,
        )  # fmt: skip
        lowest += gap
