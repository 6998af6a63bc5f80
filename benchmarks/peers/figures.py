"""Draw the two figures of docs/peers.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Measured = dict[str, Any]

OURS, BASE = "snopt", "torchdiffeq_adjoint"
CLIP = 1.45
"""Ratios beyond it are written at the edge instead of drawn."""
LIBRARIES = {
    "snopt": "#0072b2",
    "torchdiffeq": "#6b7280",
    "torchode": "#b8569a",
    "torchdyn": "#009e73",
    "diffrax": "#d55e00",
}
OPTIMIZERS = {
    "snopt": ("#0072b2", "SNOpt"),
    "snopt_refresh": ("#3c9bd6", "SNOpt, refresh iteration"),
    "adam": ("#d55e00", "Adam"),
    "torchdiffeq_adam": ("#6b7280", "Adam, torchdiffeq"),
    "muon": ("#b8569a", "Muon"),
    "soap": ("#7b5ea7", "SOAP"),
    "singd": ("#b27d00", "SINGD"),
    "optax": ("#009e73", "Adam, diffrax"),
}


def _clean(axes: Axes, title: str, xlabel: str = "") -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel(xlabel, fontsize=9)
    axes.tick_params(labelsize=8.5, length=3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _ratio_rows(found: Measured) -> list[tuple[str, float, float, float]]:
    """Seconds over torchdiffeq's adjoint, per engine: name, median, quartiles; slowest first."""
    base = found["contenders"][BASE]["both"]["median"]
    rows = [
        (name, *(each["both"][key] / base for key in ("median", "lower", "upper")))
        for name, each in found["contenders"].items()
    ]
    return sorted(rows, key=lambda row: -row[1])


def _ratios(axes: Axes, case: str, found: Measured) -> None:
    """Draw one dot per engine, with its quartiles; the name stands beside it."""
    rows = _ratio_rows(found)
    axes.axvline(1.0, color="#b8c0ca", linewidth=1, linestyle="--")
    for y, (name, middle, low, high) in enumerate(rows):
        library = name.partition("_")[0]
        colour, own = LIBRARIES[library], library == OURS
        if middle > CLIP:
            axes.text(
                CLIP, y, f"{middle:.1f} →", ha="right", va="center", fontsize=8.5, color=colour
            )
            continue
        axes.plot([low, high], [y, y], color=colour, linewidth=2, alpha=0.5)
        axes.plot(middle, y, "o", color=colour, markersize=8 if own else 6)
        axes.annotate(
            f"{middle:.2f}", (max(high, middle), y), xytext=(7, 0), textcoords="offset points",
            fontsize=8.5, va="center", color=colour, fontweight="bold" if own else "normal",
        )  # fmt: skip
    labels = [f"{library} {form}" for library, _, form in (row[0].partition("_") for row in rows)]
    axes.set_yticks(range(len(rows)), labels)
    for label, (name, *_) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(LIBRARIES[name.partition("_")[0]])
        label.set_fontweight("bold" if name.startswith(OURS) else "normal")
    slowest = max(high for _, _, _, high in rows if high <= CLIP)
    axes.set(xlim=(0, CLIP if rows[0][1] > CLIP else 1.15 * slowest), ylim=(-0.6, len(rows) - 0.4))
    _clean(axes, case, "seconds / seconds of torchdiffeq's adjoint; left is faster")


def _targets(axes: Axes, case: str, seconds: dict[str, float]) -> None:
    """Draw seconds to an accuracy, fastest on top."""
    rows = sorted(seconds.items(), key=lambda row: -row[1])
    for y, (name, value) in enumerate(rows):
        colour = OPTIMIZERS[name][0]
        axes.plot([0, value], [y, y], color=colour, linewidth=1.5, alpha=0.4)
        axes.plot(value, y, "o", color=colour, markersize=7)
        axes.annotate(f"{value:.2g} s", (value, y), xytext=(7, 0), textcoords="offset points",
                      fontsize=8.5, va="center", color=colour)  # fmt: skip
    axes.set_yticks(range(len(rows)), [OPTIMIZERS[name][1] for name, _ in rows])
    axes.set(xlim=(0, 1.3 * max(value for _, value in rows)), ylim=(-0.6, len(rows) - 0.4))
    _clean(axes, case, "seconds; left is faster")


def target_bars(measured: Measured) -> dict[str, dict[str, float]]:
    """Seconds to each accuracy, by task and level."""
    heights: dict[str, dict[str, float]] = {}
    for task, found in measured.items():
        for name, figures in found["contenders"].items():
            for level, there in figures["targets"].items():
                if there["seconds"] is not None:
                    heights.setdefault(f"{task}, {level} %", {})[name] = there["seconds"]
    return heights


def draw_peers(peers: Measured, file: Path) -> bool:
    """Draw a panel per workload and per accuracy that was measured; return whether there was one.

    Engines: loss and gradient, over torchdiffeq's adjoint, with quartiles. Optimizers: time to a
    test accuracy.
    """
    engines = peers.get("engines") or {}
    targets = target_bars(peers.get("targets") or {})
    panels: list[Any] = [(_ratios, f"{case}: loss and gradient", engines[case]) for case in engines]
    panels += [(_targets, f"time to accuracy: {case}", targets[case]) for case in targets]
    if not panels:
        return False
    rows = (len(panels) + 1) // 2
    figure = Figure(figsize=(10, 2.75 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flatten()
    for panel, (draw, title, content) in zip(axes, panels, strict=False):
        draw(panel, title, content)
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    figure.savefig(file, dpi=110)
    return True


GROWTH = {"milliseconds": "milliseconds per iteration", "megabytes": "MB per iteration"}


def _spread(ends: list[tuple[float, str]], gap: float) -> list[tuple[float, str]]:
    """Move labels apart, in powers of ten, so that none covers another."""
    placed: list[tuple[float, str]] = []
    for value, name in sorted(ends):
        lowest = placed[-1][0] * gap if placed else value
        placed.append((max(value, lowest), name))
    return placed


def draw_growth(grown: Measured, file: Path) -> None:
    """Draw time and memory of one iteration against each size; labels at the right-hand curves."""
    axes_found = grown["axes"]
    figure = Figure(figsize=(11.5, 5.4), layout="constrained")
    panels = figure.subplots(2, len(axes_found), squeeze=False, sharey="row")
    for column, (axis, found) in enumerate(axes_found.items()):
        for row, (key, unit) in enumerate(GROWTH.items()):
            panel = panels[row, column]
            for name, figures in found["contenders"].items():
                colour = OPTIMIZERS[name][0]
                panel.plot(found["sizes"], figures[key], "o-", color=colour, markersize=4)
            panel.set(xscale="log", yscale="log", xlabel=axis)
            panel.set_xticks(found["sizes"], [str(size) for size in found["sizes"]])
            panel.minorticks_off()
            panel.tick_params(labelsize=8.5)
            panel.grid(axis="y", color="#eef0f3")
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(unit, fontsize=9)
            if column == len(axes_found) - 1:
                _label_ends(panel, found, key)
    figure.savefig(file, dpi=110)


def _label_ends(panel: Axes, found: Measured, key: str) -> None:
    ends = [(figures[key][-1], name) for name, figures in found["contenders"].items()]
    low, high = panel.get_ylim()
    for y, name in _spread(ends, gap=(high / low) ** 0.085):
        colour, label = OPTIMIZERS[name]
        panel.annotate(label, (found["sizes"][-1], y), xytext=(8, 0), textcoords="offset points",
                       color=colour, fontsize=8.5, va="center", annotation_clip=False)  # fmt: skip
