"""What the page's script draws, as numbers and names that JSON can hold."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from snopt.lab.optimizers.registry import PALETTE, color_index
from snopt.lab.report.curves import Band, Quantity, band, quantities, table_of
from snopt.lab.report.groups import Group
from snopt.lab.report.records import STEPS
from snopt.lab.report.tables import Comparison

# As many as the palette, plain and dashed, tells apart.
COLORS = 2 * len(PALETTE)


def colors_of(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """One colour per label, the same in all tasks; an optimizer's is the same in all reports.

    Returns:
        Index of the colour by label.
    """
    labels = dict.fromkeys(group.label for task in comparisons for group in task.groups)
    known = {label: place for label in labels if (place := color_index(label)) is not None}
    # What the registry does not know, or has several settings of, gets what is left.
    free = [place for place in range(COLORS) if place not in known.values()]
    others = [label for label in labels if label not in known]
    return known | {label: free[k % len(free)] for k, label in enumerate(others)}


def first_quantities(comparison: Comparison) -> list[Quantity]:
    """What is drawn unless the reader asks for something else: loss, metric, a learned horizon.

    Returns:
        Those of them that were recorded.
    """
    measure = comparison.measure
    runs = [run for group in comparison.groups for run in group.runs]
    recorded = quantities(runs)
    wanted = (Quantity(STEPS, "loss"), Quantity(measure.split, measure.metric))
    horizons = [quantity for quantity in recorded if quantity.name.startswith("horizon")]
    # A horizon that stays where it was is not worth a chart.
    learned = [
        horizon
        for horizon in horizons
        if any(len(set(table_of(run, horizon)[:, 2])) > 1 for run in runs)
    ]
    return [quantity for quantity in wanted if quantity in recorded] + learned[:1]


def page_data(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Everything that the script draws.

    Returns:
        Lists, dictionaries, strings and finite numbers.
    """
    colors = colors_of(comparisons)
    return {"tasks": [_task(comparison, colors) for comparison in comparisons]}


def to_json(data: dict[str, Any]) -> str:
    r"""JSON that is safe between script tags: no ``<``, and nothing but ASCII.

    Example:
        >>> print(to_json({"label": "</script>"}))
        {"label":"\u003c/script>"}
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _task(comparison: Comparison, colors: dict[str, int]) -> dict[str, Any]:
    measure = comparison.measure
    recorded = quantities(run for group in comparison.groups for run in group.runs)
    first = [(group, run) for group in comparison.groups for run in group.runs[:1]]
    later = [(group, run) for group in comparison.groups for run in group.runs[1:]]
    return {
        "name": comparison.task,
        "quantities": [{"key": _key(quantity), "text": str(quantity)} for quantity in recorded],
        "charts": [_key(quantity) for quantity in first_quantities(comparison)],
        "target": _rounded(measure.target),
        "targetQuantity": _key(Quantity(measure.split, measure.metric)),
        "groups": [_group(group, recorded, colors) for group in comparison.groups],
        "pictures": [_picture(group, picture) for group, run in first for picture in run.pictures],
        "otherPictures": [
            _picture(group, picture, f", seed {run.seed}")
            for group, run in later
            for picture in run.pictures
        ],
    }


def _key(quantity: Quantity) -> str:
    return f"{quantity.split}/{quantity.name}"


def _group(group: Group, recorded: Sequence[Quantity], colors: dict[str, int]) -> dict[str, Any]:
    color, seeds = colors[group.label], len(group.runs)
    curves = {
        _key(quantity): _curve(joined, seeds)
        for quantity in recorded
        if (joined := band([table_of(run, quantity) for run in group.runs])) is not None
    }
    return {"label": group.label, "color": color, "seeds": seeds, "curves": curves}


def _curve(joined: Band, seeds: int) -> dict[str, Any]:
    """The band as lists, without what goes without saying."""
    told = {name: values for name, values in vars(joined).items() if name != "sd"}
    curve = {name: _rounded(values.tolist()) for name, values in told.items()}
    if joined.count.max() == 1:
        curve = {name: curve[name] for name in ("iteration", "seconds", "mean", "count")}
    if joined.count.min() == seeds:
        del curve["count"]
    return curve


def _picture(group: Group, picture: Any, which: str = "") -> dict[str, Any]:
    return {**_rounded(dataclasses.asdict(picture)), "label": group.label + which}


def _rounded(value: Any) -> Any:
    """Six significant digits, which no screen shows; None for what is not finite."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
