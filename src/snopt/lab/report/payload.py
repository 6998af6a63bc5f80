"""The data for the page's script, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from snopt.lab.optimizers.registry import OPTIMIZERS, PALETTE, color_index
from snopt.lab.report.curves import Band, Quantity, band, quantities, table_of
from snopt.lab.report.records import STEPS
from snopt.lab.report.summary import Summary
from snopt.lab.report.tables import Comparison

# The colours of the palette, plain and dashed.
COLORS = 2 * len(PALETTE)


def colors_of(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Return the index of a colour per label, the same in all tasks.

    An optimizer of the registry has the same colour in all reports.
    """
    labels = dict.fromkeys(group.label for task in comparisons for group in task.groups)
    found = {label: place for label in labels if (place := color_index(label)) is not None}
    for label in (label for label in labels if label not in found):
        free = [k for k in range(COLORS) if k not in found.values()] or [len(found) % COLORS]
        # Variants of a registered optimizer take any free colour. Other optimizers take the colours
        # of no registered one, as long as there are some.
        variant = color_index(label.split(" ")[0]) is not None
        unowned = [k for k in free if k >= len(OPTIMIZERS)]
        found[label] = (free if variant else unowned or free)[0]
    return found


def first_quantities(comparison: Comparison) -> list[Quantity]:
    """Return the quantities shown by default: loss, metric and a learned horizon, if recorded."""
    runs = [run for _, run in comparison.runs]
    recorded = quantities(runs)
    wanted = (Quantity(STEPS, "loss"), comparison.measure.quantity)
    # A constant horizon needs no chart.
    learned = [
        quantity
        for quantity in recorded
        if quantity.name.startswith("horizon")
        and any(len(set(table_of(run, quantity)[:, 2])) > 1 for run in runs)
    ]
    return [quantity for quantity in wanted if quantity in recorded] + learned[:1]


def page_data(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return everything that the script draws: lists, objects, strings and finite numbers."""
    colors = colors_of(comparisons)
    return {"tasks": [_task(comparison, colors) for comparison in comparisons]}


def to_json(data: dict[str, Any]) -> str:
    r"""Write JSON that is safe between script tags: no ``<``, and nothing but ASCII.

    Example:
        >>> print(to_json({"label": "</script>"}))
        {"label":"\u003c/script>"}
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _task(comparison: Comparison, colors: dict[str, int]) -> dict[str, Any]:
    measure = comparison.measure
    recorded = quantities(run for _, run in comparison.runs)
    pictures: list[list[dict[str, Any]]] = [[], []]  # of the first seed, of the others
    for group, run in comparison.runs:
        first = run is group.runs[0]
        which = group.label if first else f"{group.label}, seed {run.seed}"
        drawn = [{**_rounded(vars(picture)), "label": which} for picture in run.pictures]
        pictures[not first] += drawn
    return {
        "name": comparison.task,
        "quantities": [{"key": _key(quantity), "text": str(quantity)} for quantity in recorded],
        "charts": [_key(quantity) for quantity in first_quantities(comparison)],
        "target": _rounded(measure.target),
        "targetQuantity": _key(measure.quantity),
        "groups": [_group(group, recorded, colors) for group in comparison.groups],
        "pictures": pictures[0],
        "otherPictures": pictures[1],
    }


def _key(quantity: Quantity) -> str:
    return f"{quantity.split}/{quantity.name}"


def _group(group: Summary, recorded: Sequence[Quantity], colors: dict[str, int]) -> dict[str, Any]:
    seeds = len(group.runs)
    told: dict[str, Any] = {"label": group.label, "color": colors[group.label], "seeds": seeds}
    seconds, iterations = group.whole("seconds to target"), group.whole("iterations to target")
    if seconds and iterations:
        told["reached"] = _rounded({"seconds": seconds.mean, "iteration": iterations.mean})
    curves = {
        _key(quantity): _curve(joined, seeds)
        for quantity in recorded
        if (joined := band([table_of(run, quantity) for run in group.runs])) is not None
    }
    return told | {"curves": curves}


def _curve(joined: Band, seeds: int) -> dict[str, Any]:
    """Return the band as lists; omit the spread of one seed, and a constant count."""
    spread = [] if joined.count.max() == 1 else ["low", "high", "below", "above"]
    count = [] if joined.count.min() == seeds else ["count"]
    names = ["iteration", "seconds", "mean", *spread, *count]
    return {name: _rounded(getattr(joined, name).tolist()) for name in names}


def _rounded(value: Any) -> Any:
    """Round to six significant digits; None for a number that is not finite."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
