"""Draw the two figures of docs/peers.md."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.files import WORKLOADS
from snopt.lab.paper.curves import clean, end_labels

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


def draw_peers(figure: Figure, engines: Measured) -> None:
    """Draw loss and gradient over torchdiffeq's adjoint: a panel per workload, a row per form."""
    cases = [case for case in WORKLOADS if case in engines]
    names = _in_order(engines)
    figure.set_size_inches(1.8 + 2.4 * len(cases), 0.8 + 0.32 * len(names))
    panels = figure.subplots(1, len(cases), squeeze=False, sharey=True)[0]
    for axes, case in zip(panels, cases, strict=True):
        found = engines[case]["contenders"]
        base = found[BASE]["both"]["median"]
        axes.axvline(1.0, color="#b8c0ca", linewidth=1, linestyle="--")
        for y, name in enumerate(names):
            _dot(axes, y, name, found[name]["both"] if name in found else None, base)
        axes.set(xlim=(0, CLIP), ylim=(-0.6, len(names) - 0.4), xticks=[0, 0.5, 1])
        axes.set_axisbelow(True)
        clean(axes, title=TITLES[case])
    panels[0].set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    for tick, name in zip(panels[0].get_yticklabels(), names, strict=True):
        tick.set_color(LIBRARIES[name.partition("_")[0]])
        tick.set_fontweight("bold" if name.startswith("snopt") else "normal")
    figure.supxlabel(
        "seconds of loss and gradient, torchdiffeq's adjoint = 1; left is faster", fontsize=9
    )


CURVES = {
    "snopt": "SNOpt",
    "snopt_refresh": "SNOpt, refresh",
    "torchdiffeq_adam": "Adam, torchdiffeq",
}
"""Contenders whose figures are divided by those of Adam on our engine."""
COLOURS = {"SNOpt": "#0072b2", "SNOpt, refresh": "#3c9bd6", "Adam, torchdiffeq": "#6b7280"}
UNITS = {"milliseconds": "time / Adam's", "megabytes": "memory / Adam's"}


def draw_growth(figure: Figure, axes: Measured) -> None:
    """Draw time and memory of one iteration over those of Adam, against each size."""
    figure.set_size_inches(11.5, 5.2)
    panels = figure.subplots(2, len(axes), squeeze=False, sharey="row")
    for row, (key, unit) in zip(panels, UNITS.items(), strict=True):
        for panel, (axis, found) in zip(row, axes.items(), strict=True):
            panel.axhline(1.0, color="#d55e00", linewidth=1, linestyle="--")
            for name, ratios in _ratios(found["contenders"], key).items():
                panel.plot(ratios, "o-", color=COLOURS[name], markersize=5)
            panel.set_xticks(range(len(found["sizes"])), [str(size) for size in found["sizes"]])
            clean(panel, title=f"growing {axis}" if key == "milliseconds" else "")
        row[0].set_ylim(bottom=0)
        row[0].set_ylabel(unit)
        last, place = _ratios(found["contenders"], key), len(found["sizes"]) - 1
        ends = {name: (place, ratios[-1], COLOURS[name]) for name, ratios in last.items()}
        end_labels(row[-1], {**ends, "Adam = 1": (place, 1.0, "#d55e00")})


def _ratios(contenders: Measured, key: str) -> dict[str, list[float]]:
    """Return the curves over Adam's, by label."""
    return {
        label: [a / b for a, b in zip(contenders[name][key], contenders["adam"][key], strict=True)]
        for name, label in CURVES.items()
        if name in contenders
    }
