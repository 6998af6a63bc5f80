"""Pictures in a run folder: points, paths of states, densities on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from snopt.lab.report.records import HUGE, Floats

T = TypeVar("T", bound=Sequence[Any] | Floats)

# Limits: more detail than a screen shows would only make the page larger.
MAX_POINTS, MAX_PATHS, MAX_TIMES, MAX_CELLS = 3000, 300, 60, 160
MAX_FRAMES, MAX_FRAME_CELLS = 40, 60


@dataclass(frozen=True)
class Picture:
    """A picture whose numbers have been checked.

    Attributes:
        kind: ``"points"``, ``"paths"`` or ``"grid"``.
        title: title of the picture.
        points: points of the plane (kind ``points``).
        paths: paths, each a list of points in the order of time (kind ``paths``).
        classes: class of each point or path; empty if there are none.
        extent: left, right, bottom, top of ``values`` or ``frames``.
        values: rows from bottom to top (kind ``grid``).
        frames: densities over time behind the paths, each a grid of 0 to 255; may be empty.
    """

    kind: str
    title: str
    points: list[list[float]] = field(default_factory=list)
    paths: list[list[list[float]]] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    extent: list[float] = field(default_factory=list)
    values: list[list[float]] = field(default_factory=list)
    frames: list[list[list[int]]] = field(default_factory=list)


def make_picture(content: dict[str, Any]) -> Picture | None:
    """Check the content of a file in ``pictures/``, and reduce it to the resolution of a screen.

    Args:
        content: ``kind`` and ``title``, with ``points`` or ``paths`` and their ``classes``, or
            with ``extent`` and ``values``. Paths may have a ``density`` of ``extent`` and
            ``frames``.

    Returns:
        the picture, or None if it cannot be drawn.

    Example:
        >>> make_picture({"kind": "points", "title": "x(0)", "points": [[0, 1]], "classes": [2]})
        Picture(kind='points', title='x(0)', points=[[0.0, 1.0]], ..., classes=[2], ...)
        >>> make_picture({"kind": "points", "points": [[0, None]]}) is None
        True
    """
    make = {"points": _points, "paths": _paths, "grid": _grid}.get(str(content.get("kind")))
    try:
        return make and Picture(content["kind"], str(content.get("title", "")), **make(content))
    except (TypeError, ValueError, KeyError):
        return None


def _points(content: dict[str, Any]) -> dict[str, Any]:
    points = _array(content["points"], -1, 2)
    return {
        "points": _thin(points, MAX_POINTS).tolist(),
        "classes": _thin(_classes(content, len(points)), MAX_POINTS),
    }


def _paths(content: dict[str, Any]) -> dict[str, Any]:
    paths = [_array(path, -1, 2) for path in content["paths"]]
    thinned = [[*_thin(path[:-1], MAX_TIMES).tolist(), path[-1].tolist()] for path in paths]
    classes = _classes(content, len(paths))
    drawn = {"paths": _thin(thinned, MAX_PATHS), "classes": _thin(classes, MAX_PATHS)}
    return drawn | (_frames(content["density"]) if "density" in content else {})


def _frames(density: dict[str, Any]) -> dict[str, Any]:
    """Return grids over time as small integers, because a page contains many of them."""
    frames = _array(density["frames"], -1, -1, -1)
    for axis, limit in enumerate((MAX_FRAMES, MAX_FRAME_CELLS, MAX_FRAME_CELLS)):
        frames = _thin(frames.swapaxes(0, axis), limit).swapaxes(0, axis)
    # Each frame has its own scale and shows roots, because a contracted density has a high peak.
    peaks = np.maximum(frames.max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    levels = 255 * np.sqrt(np.maximum(frames, 0.0) / peaks)
    return {"extent": _extent(density), "frames": levels.round().astype(int).tolist()}


def _grid(content: dict[str, Any]) -> dict[str, Any]:
    values = _thin(_thin(_array(content["values"], -1, -1), MAX_CELLS).T, MAX_CELLS).T
    return {"extent": _extent(content), "values": values.tolist()}


def _extent(content: dict[str, Any]) -> list[float]:
    left, right, bottom, top = extent = _array(content["extent"], 4).tolist()
    if not (left < right and bottom < top):
        raise ValueError("an extent without area")
    return list(extent)


def _classes(content: dict[str, Any], count: int) -> list[int]:
    if not count:
        raise ValueError("nothing to draw")
    return [int(k) for k in _array(content["classes"], count)] if content.get("classes") else []


def _array(values: object, *shape: int) -> Floats:
    """Return finite numbers as an array of this shape, where -1 is any size but 0."""
    array = np.array(values)  # a ValueError for rows of different lengths
    fits = len(array.shape) == len(shape) and all(
        n in (m, -1) for n, m in zip(shape, array.shape, strict=True)
    )
    if not fits or not array.size or array.dtype.kind not in "iuf":
        raise ValueError(f"{array.dtype} of shape {array.shape}")
    if not (abs(array) <= HUGE).all():
        raise ValueError("a number that is not finite")
    return array.astype(np.float64)


def _thin(items: T, limit: int) -> T:
    """Take every k-th item, so at most ``limit`` remain."""
    return items[:: max(1, math.ceil(len(items) / limit))]  # type: ignore[return-value]
