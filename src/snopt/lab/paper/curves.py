"""Curves with a band over seeds, as plain numbers and as a figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from snopt.lab.paper.item import Result
from snopt.lab.paper.names import color_of
from snopt.lab.report.curves import Quantity, band, table_of
from snopt.lab.report.read import Run

Curve: TypeAlias = dict[str, list[float]]
"""``iteration``, ``seconds``, ``mean``, ``sd``, ``below`` and ``above``, of equal length."""

POINTS = 100
FLAT = 0.005
"""A validation curve is flat if its last quarter adds less than this share of the whole gain."""


def curve(runs: Sequence[Run], split: str, name: str) -> Curve | None:
    """Average a quantity over seeds; ``seconds`` are CPU seconds where they were recorded.

    Args:
        runs: one run per seed.
        split: ``"training"`` for quantities of every step, else the evaluated split.
        name: the quantity.

    Returns:
        The curve; None if no run has it.
    """
    tables = []
    for run in runs:
        table, spent = table_of(run, Quantity(split, name)), run.records.steps.table("cpu_seconds")
        if len(spent):
            table[:, 1] = np.interp(table[:, 0], [0, *spent[:, 0]], [0, *spent[:, 2]])
        tables.append(table)
    joined = band(tables, POINTS)
    if joined is None:
        return None
    return {
        name: [float(f"{value:.5g}") for value in getattr(joined, name)]
        for name in ("iteration", "seconds", "mean", "sd", "below", "above")
    }


def last_gain(values: Sequence[float], mode: Literal["max", "min"]) -> float:
    """Return what the last quarter of a curve adds to its best value, as a share of the whole gain.

    The whole gain is from the first value to the best one. The same rule serves accuracies and
    likelihoods, and all methods; a curve is flat if the share is below ``FLAT``.

    Example:
        >>> last_gain([0.1, 0.8, 0.9, 0.94, 0.95, 0.95, 0.95, 0.949], "max")
        0.0
        >>> round(last_gain([3.0, 2.0, 1.5, 1.0], "min"), 2)
        0.25
    """
    gains = [(value - values[0]) * (1 if mode == "max" else -1) for value in values]
    whole, earlier = max(gains), max(gains[: max(3 * len(gains) // 4, 1)])
    return (whole - earlier) / whole if whole > 0 else 0.0


def first_at(found: Curve, target: float, mode: Literal["max", "min"]) -> dict[str, float] | None:
    """Return seconds and iterations until a curve first reaches a target; None if it never does.

    Example:
        >>> curve = {"seconds": [1.0, 2.0], "iteration": [10.0, 20.0], "mean": [0.5, 0.9]}
        >>> first_at(curve, 0.8, "max"), first_at(curve, 0.95, "max")
        ({'seconds': 2.0, 'iteration': 20.0}, None)
    """
    for k, value in enumerate(found["mean"]):
        if value >= target if mode == "max" else value <= target:
            return {"seconds": found["seconds"][k], "iteration": found["iteration"][k]}
    return None


def plot(axis: Any, found: Curve, x: str, *, color: str, label: str) -> None:
    """Draw a curve with its band, which stays within the range of the seeds."""
    axis.plot(found[x], found["mean"], color=color, linewidth=1.4, label=label)
    if "below" in found:
        ends = found["below"], found["above"]
        axis.fill_between(found[x], *ends, color=color, alpha=0.16, linewidth=0)


def clean(axis: Any, x: str = "", y: str = "", title: str = "") -> None:
    """Label an axis, draw a light grid and remove the upper and right border."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_title(title, fontsize=9)
    axis.grid(color="#e4e7eb", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def ticks(axis: Any, values: Iterable[float], texts: Iterable[str] | None = None) -> None:
    """Put ticks at given values of x only."""
    values = sorted(set(values))
    axis.set_xticks(values, texts or [f"{value:g}" for value in values])
    axis.minorticks_off()


def legend(figure: Any, columns: int, where: str = "upper") -> None:
    """Put one legend of all panels above or below them."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    place = f"outside {where} center"
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False)


def bars(
    axis: Any, groups: Mapping[str, Mapping[str, float | None]], colors: Mapping[str, str]
) -> None:
    """Draw a bar per name in each group, in the order of the colours."""
    names = [name for name in colors if any(name in group for group in groups.values())]
    width = 0.8 / max(len(names), 1)
    for k, name in enumerate(names):
        places = [i + (k - (len(names) - 1) / 2) * width for i in range(len(groups))]
        heights = [group.get(name) for group in groups.values()]
        known = [np.nan if height is None else height for height in heights]
        axis.bar(places, known, width, color=colors[name], label=name)
    axis.set_xticks(range(len(groups)), list(groups))
    axis.set_axisbelow(True)


def draw_curves(figure: Any, result: Result) -> None:
    """Draw a row of four panels per data set: loss and metric, by seconds and by iterations."""
    figure.set_size_inches(13, 2.5 * max(len(result.curves), 1))
    axes = figure.subplots(len(result.curves), 4, squeeze=False)
    for (task, methods), row in zip(result.curves.items(), axes, strict=True):
        quantities = list(next(iter(methods.values())))
        panels = [(q, x) for q in quantities for x in ("seconds", "iteration")]
        for axis, (quantity, x) in zip(row, panels, strict=True):
            for method, found in methods.items():
                if found[quantity] is not None:
                    plot(axis, found[quantity], x, color=color_of(method), label=method)
            drawn = [found[quantity]["mean"] for found in methods.values() if found[quantity]]
            if "loss" in quantity and min(map(min, drawn)) > 0:
                axis.set_yscale("log")
            clean(axis, "CPU seconds" if x == "seconds" else "iterations", quantity, task)
    legend(figure, 4)
