"""Curves with a band over seeds, as plain numbers and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from snopt.lab.paper.item import Result
from snopt.lab.paper.names import color_of
from snopt.lab.report.curves import Quantity, band, table_of
from snopt.lab.report.read import Run
from snopt.lab.report.records import Floats

__all__ = ["Curve", "clean", "curve", "draw_curves", "legend", "plot"]

Curve: TypeAlias = dict[str, list[float]]
"""``iteration``, ``seconds``, ``mean`` and ``sd``, of equal length."""

POINTS = 100


def curve(runs: Sequence[Run], quantity: Quantity) -> Curve | None:
    """Average a quantity over seeds; ``seconds`` are the processor's, where they were recorded.

    Args:
        runs: one a seed.
        quantity: what was measured.

    Returns:
        The curve, None if no run has it.
    """
    joined = band([_by_cpu_seconds(run, quantity) for run in runs], POINTS)
    if joined is None:
        return None
    return {
        name: [float(f"{value:.5g}") for value in getattr(joined, name)]
        for name in ("iteration", "seconds", "mean", "sd")
    }


def _by_cpu_seconds(run: Run, quantity: Quantity) -> Floats:
    table, spent = table_of(run, quantity), run.records.steps.table("cpu_seconds")
    if len(spent):
        table[:, 1] = np.interp(table[:, 0], [0, *spent[:, 0]], [0, *spent[:, 2]])
    return table


def plot(axis: Any, found: Curve, x: str, *, color: str, label: str) -> None:
    """Draw one curve with its band."""
    mean, sd = np.array(found["mean"]), np.array(found["sd"])
    axis.plot(found[x], mean, color=color, linewidth=1.4, label=label)
    axis.fill_between(found[x], mean - sd, mean + sd, color=color, alpha=0.16, linewidth=0)


def clean(axis: Any, x: str, y: str = "", title: str = "") -> None:
    """Label an axis, and take away what is not needed."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_title(title, fontsize=9)
    axis.grid(color="#e4e7eb", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def legend(figure: Any, columns: int, where: str = "upper") -> None:
    """Put one legend of all panels above or below them."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    place = f"outside {where} center"
    figure.legend(handles, labels, loc=place, ncols=columns, frameon=False)


def draw_curves(figure: Any, result: Result) -> None:
    """Draw a row of four pictures a data set: loss and metric, by seconds and by iterations."""
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
