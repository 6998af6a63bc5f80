"""Curves and pictures as PNG or SVG files, drawn with matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from snopt.base.errors import unknown
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.report.curves import Quantity, band, table_of
from snopt.lab.report.groups import Group
from snopt.lab.report.payload import colors_of, first_quantities
from snopt.lab.report.pictures import Picture
from snopt.lab.report.tables import Comparison

FORMATS = ("png", "svg")

# Colours of classes in pictures, different from those of optimizers. Also in report.css.
CLASS_PALETTE = (
    "#332288", "#44aa99", "#cc6677", "#ddaa33", "#117733", "#882255", "#88ccee", "#aa4499",
    "#999933", "#555555",
)  # fmt: skip
MAX_COLUMNS = 4


def matplotlib() -> Any:
    """Import matplotlib, or say how to install it."""
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'snopt[lab]'") from error
    return matplotlib


def clean(axis: Any) -> None:
    """Draw a light grid below the lines of an axis and remove its upper and right border."""
    axis.grid(color="#e4e7eb", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def write_figures(
    comparisons: Sequence[Comparison], folder: Path, format: str = "png"
) -> dict[str, list[Path]]:
    """Draw every task into files.

    Args:
        comparisons: the result of :func:`snopt.lab.report.tables.compare`.
        folder: folder of the files; created if it does not exist.
        format: ``"png"`` or ``"svg"``.

    Returns:
        the files by task: curves first, then pictures.

    Raises:
        UnknownName: ``format`` is neither.
        ImportError: matplotlib is not installed.
    """
    if format not in FORMATS:
        raise unknown("figure format", format, FORMATS)
    mpl = matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    colors = colors_of(comparisons)
    written: dict[str, list[Path]] = {}
    # Dollar signs in names of runs do not start a formula; text in SVG stays text.
    with mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none", "font.size": 9}):
        for k, comparison in enumerate(comparisons, start=1):
            name = f"{k}-{re.sub(r'[^A-Za-z0-9_-]+', '-', comparison.task)[:60].strip('-')}"
            curves, pictures = _curves(comparison, colors), _pictures(comparison)
            paths = written.setdefault(comparison.task, [])
            for kind, figure in (("curves", curves), ("pictures", pictures)):
                if figure is not None:
                    paths.append(folder / f"{name}-{kind}.{format}")
                    figure.savefig(paths[-1], dpi=150, bbox_inches="tight")
    return written


def _curves(comparison: Comparison, colors: dict[str, int]) -> Any:
    """Draw a row per quantity: against seconds on the left, against iterations on the right."""
    rows = first_quantities(comparison)
    if not rows:
        return None
    figure = matplotlib().figure.Figure(figsize=(9, 3 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 2, squeeze=False, sharey="row")
    measure = comparison.measure
    for quantity, pair in zip(rows, axes, strict=True):
        left = pair[0]
        left.set_ylabel(str(quantity))
        for group in comparison.groups:
            _draw_group(pair, group, quantity, colors[group.label])
        for axis, text in zip(pair, ("seconds of training", "iterations"), strict=True):
            axis.set_xlabel(text)
            clean(axis)
            if quantity == measure.quantity and measure.target is not None:
                axis.axhline(measure.target, color="black", linewidth=0.8, linestyle="--")
        low, high = left.dataLim.intervaly
        if 0 < low < high / 100:  # as on the page
            left.set_yscale("log")
            left.yaxis.set_major_formatter("{x:g}")
            left.yaxis.set_minor_formatter("")
    # matplotlib before 3.10 skips labels with a leading underscore.
    handles = {line.get_gid(): line for row in axes for axis in row for line in axis.get_lines()}
    labels = [group.label for group in comparison.groups if group.label in handles]
    figure.legend(
        [handles[label] for label in labels],
        [re.sub("^_", " _", label) for label in labels],
        loc="outside upper center", ncols=4, frameon=False,
    )  # fmt: skip
    return figure


def _draw_group(axes: Sequence[Any], group: Group, quantity: Quantity, index: int) -> None:
    """Draw one curve with its band, against seconds and against iterations."""
    joined = band([table_of(run, quantity) for run in group.runs])
    if joined is None:
        return
    color, style = PALETTE[index % len(PALETTE)], "-" if index < len(PALETTE) else "--"
    line = {"color": color, "linewidth": 1.6, "gid": group.label}
    # Dotted from where a seed has stopped, as on the page.
    full = int((joined.count == len(group.runs)).sum())
    rest = slice(max(full - 1, 0), None)
    for axis, x in zip(axes, (joined.seconds, joined.iteration), strict=True):
        axis.plot(x[rest], joined.mean[rest], ":", **line)
        axis.plot(x[:full], joined.mean[:full], style, **line)
        axis.fill_between(x, joined.below, joined.above, color=color, alpha=0.16, linewidth=0)


def _pictures(comparison: Comparison) -> Any:
    """Draw a row per group: the pictures of its first seed."""
    drawn = {group.label: group.runs[0].pictures[:MAX_COLUMNS] for group in comparison.groups}
    drawn = {label: pictures for label, pictures in drawn.items() if pictures}
    if not drawn:
        return None
    columns = max(map(len, drawn.values()))
    size = 2.8 * columns, 3 * len(drawn)
    figure = matplotlib().figure.Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(drawn), columns, squeeze=False)
    for (label, pictures), row in zip(drawn.items(), axes, strict=True):
        for axis in row:
            axis.set_axis_off()
        for axis, picture in zip(row, pictures, strict=False):
            axis.set_title(fill(f"{label}: {picture.title}", 40), fontsize=8)
            axis.set_aspect("equal")
            _draw_picture(axis, picture)
    return figure


def _draw_picture(axis: Any, picture: Picture) -> None:
    if picture.kind == "grid":
        axis.imshow(picture.values, origin="lower", extent=picture.extent, cmap="cividis")
        return
    ends = picture.points or [path[-1] for path in picture.paths]
    colors = [CLASS_PALETTE[k % len(CLASS_PALETTE)] for k in picture.classes or [0] * len(ends)]
    for path, color in zip(picture.paths, colors, strict=False):
        axis.plot(*zip(*path, strict=True), color=color, linewidth=0.7, alpha=0.5)
    axis.scatter(*zip(*ends, strict=True), c=colors, s=5)
    for index, color in sorted({*zip(picture.classes, colors, strict=False)}):
        axis.scatter([], [], color=color, s=12, label=f"class {index}")
    if picture.classes:
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
        axis.legend(**place, fontsize=6, frameon=False, ncols=5, handletextpad=0.1)
