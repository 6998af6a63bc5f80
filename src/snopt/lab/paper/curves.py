"""Curves with a band over seeds, as plain numbers and as a figure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from snopt.lab.paper.names import METHODS, TUNED, color_of
from snopt.lab.paper.rates import Rate
from snopt.lab.report import figures
from snopt.lab.report.curves import band
from snopt.lab.report.read import Run
from snopt.lab.report.records import evenly

Curve: TypeAlias = dict[str, list[float]]
"""``iteration``, ``seconds``, ``mean``, ``sd``, ``below`` and ``above``, of equal length."""
Mode: TypeAlias = Literal["max", "min"]

POINTS = 60
"""Points of a curve at most."""
FLAT = 0.005
"""A validation curve is flat if its last quarter adds less than this share of the whole gain."""


def clock(run: Run, rate: Rate | None = None) -> Any:
    """Return rows (updates, CPU seconds), by a measured rate or as recorded."""
    return run.records.steps.table("cpu_seconds")[:, [0, 2]] if rate is None else rate.along(run)


def cpu_table(run: Run, split: str, name: str, rate: Rate | None = None) -> Any:
    """Return rows (iteration, seconds, value); CPU seconds if they are known."""
    table, spent = run.records.split(split).table(name), clock(run, rate)
    if len(spent):
        table[:, 1] = np.interp(table[:, 0], [0, *spent[:, 0]], [0, *spent[:, 1]])
    return table


def thinned(table: Any, most: int = POINTS) -> list[list[float]]:
    """Return the columns of a table with at most so many rows, the first and the last included.

    Example:
        >>> thinned(np.arange(10.0)[:, None], 4)
        [[0.0, 3.0, 6.0, 9.0]]
    """
    return [[_short(value) for value in column] for column in table[evenly(len(table), most)].T]


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def averaged(tables: Sequence[Any]) -> Curve | None:
    """Average tables of several seeds, as of :func:`cpu_table`; None if all are empty."""
    joined = band(tables, POINTS)
    if joined is None:
        return None
    return {
        name: [_short(value) for value in getattr(joined, name)]
        for name in ("iteration", "seconds", "mean", "sd", "below", "above")
    }


def curve(runs: Sequence[Run], split: str, name: str, rate: Rate | None = None) -> Curve | None:
    """Average a quantity over seeds; quantities of every step are medians of several steps.

    ``split`` is ``"training"`` for quantities of every step. None if no run has the quantity.
    """
    tables = [cpu_table(run, split, name, rate) for run in runs]
    if split == "training":
        tables = [_medians(table) for table in tables if len(table)]
    return averaged(tables)


def _medians(table: Any) -> Any:
    parts = np.array_split(table, min(POINTS, len(table) // 5 + 1))
    return np.array([np.median(part, axis=0) for part in parts])


def last_gain(values: Sequence[float], mode: Mode) -> float:
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


def best_rival(found: Mapping[str, Curve | None], mode: Mode) -> str | None:
    """Return the method whose mean has the best value, SNOpt's aside; None if there is none."""
    best = max if mode == "max" else min
    rivals = {n: best(c["mean"]) for n, c in found.items() if c and not n.startswith("SNOpt")}
    return best(rivals, key=rivals.__getitem__, default=None)


# ------------------------------------------------------------------------------------- figures

WIDTH = 9.0
"""Inches of a figure. Pages show it about 800 pixels wide, where 9 points are 11 pixels."""


def clean(axis: Any, x: str = "", y: str = "", title: str = "") -> None:
    """Label an axis, draw a light grid and remove the upper and right border."""
    axis.set(xlabel=x, ylabel=y)
    axis.set_title(title, fontsize=9)
    figures.clean(axis)


def grid(figure: Any, count: int, columns: int = 3, height: float = 2.3, blocks: int = 1) -> Any:
    """Return panels in rows across the page, block by block: an array (blocks, count)."""
    columns = max(min(count, columns), 1)
    rows = max(-(-count // columns), 1)
    figure.set_size_inches(WIDTH, height * rows * blocks)
    axes = figure.subplots(blocks * rows, columns, squeeze=False).reshape(blocks, -1)
    for axis in axes[:, count:].flatten():
        axis.set_visible(False)
    return axes[:, :count]


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


def lines(
    axis: Any,
    found: Mapping[str, Curve | None],
    x: str,
    colors: Mapping[str, str] = MappingProxyType({}),
    strong: Collection[str | None] | None = None,
    **style: Any,
) -> None:
    """Draw curves over ``x`` with their bands, and their names at the ends.

    Args:
        axis: the panel.
        found: curves by name.
        x: the key of the curves' x.
        colors: colours of names that are not methods with a colour of their own.
        strong: names to emphasise, all by default; the others are pale, thin and without a band.
        style: further properties of the lines.
    """
    ends = {}
    for name, each in found.items():
        if each is None:
            continue
        loud = strong is None or name in strong
        color = colors.get(name) or color_of(name)
        width = 2.2 if name == METHODS["snopt"] or (strong and loud) else 1.2
        look = {"linestyle": "--" if name == METHODS[TUNED] else "-", "linewidth": width, **style}
        if not loud:
            look |= {"alpha": 0.45, "linewidth": 1.0}
        axis.plot(each[x], each["mean"], color=color, label=name, zorder=3 if loud else 2, **look)
        if loud and "below" in each:
            edges = each["below"], each["above"]
            axis.fill_between(each[x], *edges, color=color, alpha=0.16, linewidth=0)
        ends[name] = (each[x][-1], each["mean"][-1], color)
    end_labels(axis, ends, strong)


def focus(axis: Any, curves: Sequence[Sequence[float]], mode: Mode, *, log: bool = False) -> None:
    """Choose limits of y that show the ends of curves, and clip starts, spikes and stragglers."""
    if log := log and min(map(min, curves)) > 0:
        axis.set_yscale("log")
    sign = 1 if mode == "max" else -1
    scaled = [sign * (np.log10(values) if log else np.array(values)) for values in curves]
    starts = sorted(values[len(values) // 5] for values in scaled)
    low, high = starts[len(starts) // 4], max(values.max() for values in scaled)
    margin = 0.06 * (high - low) or 1.0
    limits = np.array(sorted((sign * (low - margin), sign * (high + margin))))
    axis.set_ylim(*(10**limits if log else limits))


def end_labels(
    axis: Any,
    ends: Mapping[str, tuple[float, float, str]],
    strong: Collection[str | None] | None = None,
) -> None:
    """Write names beside the ends of their lines, to the right of a panel and apart.

    ``ends`` are x, y and colour by name; names in ``strong`` are bold and the others pale. The
    limits of the axis are final from here on.
    """
    axis.set(xlim=axis.get_xlim(), ylim=axis.get_ylim())
    to_axes = axis.transScale + axis.transLimits
    places = {n: to_axes.transform((x, y)).clip(0, 1) for n, (x, y, _) in ends.items()}
    names = sorted(places, key=lambda name: float(places[name][1]))
    size = axis.figure.get_size_inches()[1] * axis.get_position().height
    gap = 0.14 / size  # inches of a line of text
    heights: list[float] = []
    for name in names:
        heights.append(max(float(places[name][1]), heights[-1] + gap if heights else 0.0))
    for k in reversed(range(len(heights))):  # from the top down, if they went beyond it
        heights[k] = min(heights[k], heights[k + 1] - gap if k + 1 < len(heights) else 1.0)
    for name, height in zip(names, heights, strict=True):
        color, loud = ends[name][2], strong is None or name in strong
        leader = {"arrowstyle": "-", "color": color, "shrinkA": 1, "shrinkB": 0}
        axis.annotate(
            name,
            xy=tuple(places[name]),
            xycoords="axes fraction",
            xytext=(1.04, height),
            textcoords="axes fraction",
            color=color,
            fontsize=8,
            fontweight="bold" if strong and loud else "normal",
            alpha=1.0 if loud else 0.85,
            va="center",
            arrowprops={**leader, "alpha": 0.5, "linewidth": 0.5, "relpos": (0, 0.5)},
        )
