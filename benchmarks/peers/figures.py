"""Draw the two figures of docs/peers.md; both are eight inches wide and readable at 800 pixels."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.files import WORKLOADS
from snopt.lab.paper.curves import clean, end_labels, ticks

Measured = dict[str, Any]

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
WIDTH = 8.0


def fastest_of_ours(contenders: Measured) -> str:
    """Return the faster form of our engine."""
    ours = [name for name in contenders if name.startswith("snopt")]
    return min(ours, key=lambda name: contenders[name]["both"]["median"])


def draw_peers(figure: Figure, engines: Measured) -> None:
    """Draw loss and gradient over our faster form: a panel per workload, a row per form."""
    cases = [case for case in WORKLOADS if case in engines]
    order = list(LIBRARIES)
    names = sorted(
        {name for found in engines.values() for name in found["contenders"]},
        key=lambda name: (order.index(name.partition("_")[0]), name),
        reverse=True,
    )
    figure.set_size_inches(WIDTH, 0.5 + (len(cases) + 1) // 2 * (0.5 + 0.2 * len(names)))
    grid = figure.subplots((len(cases) + 1) // 2, 2, squeeze=False)
    for i, (axes, case) in enumerate(zip(grid.flat, cases, strict=False)):
        contenders = engines[case]["contenders"]
        ours = fastest_of_ours(contenders)
        axes.axvline(1.0, color="#9aa3ae", linewidth=1, linestyle="--")
        for y, name in enumerate(names):
            _dot(axes, y, name, contenders, ours)
        axes.set(xscale="log", xlim=(0.8, 40), ylim=(-0.7, len(names) - 0.3))
        ticks(axes, [1, 2, 5, 10, 20])
        clean(axes, title=TITLES[case])
        axes.grid(axis="x", visible=False)
        axes.tick_params(labelsize=8, left=False)
        shown = [_shown(name) if i % 2 == 0 else "" for name in names]
        axes.set_yticks(range(len(names)), shown)
        for tick, name in zip(axes.get_yticklabels(), names, strict=True):
            tick.set_color(LIBRARIES[name.partition("_")[0]])
            tick.set_fontweight("bold" if name == ours else "normal")
    label = "time of loss and gradient over that of our faster form (left is faster)"
    figure.supxlabel(label, fontsize=9)


def _shown(name: str) -> str:
    return "snopt, eager" if name == "snopt_checkpoint" else name.replace("_", ", ")


def _dot(axes: Axes, y: int, name: str, contenders: Measured, ours: str) -> None:
    """Draw median and quartiles; what ran once is a circle without them."""
    if name not in contenders:
        axes.text(1.05, y, "not measured", va="center", fontsize=7.5, color="#8a94a0")
        return
    colour = LIBRARIES[name.partition("_")[0]]
    figures = contenders[name]
    once = figures["both"]["median"] / contenders[ours]["both"]["median"]
    ratio = figures.get("both_over", {}).get(ours)
    middle, low, high = (ratio[key] for key in KEYS) if ratio else (once, once, once)
    axes.plot([low, high], [y, y], color=colour, linewidth=3, alpha=0.4, solid_capstyle="round")
    axes.plot(middle, y, "o", color=colour, markersize=5, fillstyle="full" if ratio else "none")
    axes.annotate(
        f"{middle:.2f}" if middle < 10 else f"{middle:.1f}", (max(high, middle), y),
        xytext=(6, 0), textcoords="offset points", fontsize=8, va="center", color=colour,
        fontweight="bold" if name == ours else "normal",
    )  # fmt: skip


KEYS = ("median", "lower", "upper")
CURVES = {
    "snopt": ("SNOpt", "#0072b2"),
    "snopt_blocks": ("SNOpt, blocks", "#009e73"),
    "snopt_refresh": ("SNOpt, refresh", "#3c9bd6"),
    "torchdiffeq_adam": ("Adam, torchdiffeq", "#6b7280"),
}
"""Contenders whose figures are divided by those of Adam on our engine."""
UNITS = {"milliseconds": "time / Adam's", "megabytes": "memory / Adam's"}


def draw_growth(figure: Figure, axes: Measured) -> None:
    """Draw time and memory of one iteration over those of Adam, against each size."""
    figure.set_size_inches(WIDTH, 4.2)
    panels = figure.subplots(2, len(axes), squeeze=False, sharey="row")
    for row, (key, unit) in zip(panels, UNITS.items(), strict=True):
        for panel, (axis, found) in zip(row, axes.items(), strict=True):
            panel.axhline(1.0, color="#d55e00", linewidth=1, linestyle="--")
            ends = {"Adam = 1": (len(found["sizes"]) - 1, 1.0, "#d55e00")}
            adam = found["contenders"]["adam"][key]
            for name, (title, colour) in CURVES.items():
                if name in found["contenders"]:
                    values = found["contenders"][name][key]
                    ratios = [a / b for a, b in zip(values, adam, strict=True)]
                    panel.plot(ratios, "o-", color=colour, markersize=4)
                    ends[title] = (len(ratios) - 1, ratios[-1], colour)
            panel.set_xticks(range(len(found["sizes"])), map(str, found["sizes"]))
            panel.tick_params(labelsize=8)
            clean(panel, title=f"growing {axis}" if key == "milliseconds" else "")
        row[0].set_ylim(bottom=0)
        row[0].set_ylabel(unit, fontsize=9)
        end_labels(row[-1], ends)
