"""Pictures that a run left behind: points, paths of states, densities on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from snopt.lab.report.records import number

T = TypeVar("T")

# What fits on a screen; more would only make the page heavy.
MAX_POINTS, MAX_PATHS, MAX_TIMES, MAX_CELLS = 3000, 300, 60, 160

Point = tuple[float, float]


@dataclass(frozen=True)
class Picture:
    """A picture whose numbers have been checked.

    Attributes:
        kind: ``"points"``, ``"paths"`` or ``"grid"``.
        title: Its title.
        points: Points of the plane (kind ``points``).
        paths: Paths, each a list of points in the order of time (kind ``paths``).
        classes: Class of each point or path; empty when there are none.
        extent: Left, right, bottom, top (kind ``grid``).
        values: Rows from bottom to top (kind ``grid``).
    """

    kind: str
    title: str
    points: tuple[Point, ...] = ()
    paths: tuple[tuple[Point, ...], ...] = ()
    classes: tuple[int, ...] = ()
    extent: tuple[float, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()


def make_picture(content: dict[str, Any]) -> Picture | None:
    """Check what a file in ``pictures/`` holds, and thin it to what a screen can show.

    Args:
        content: ``kind`` and ``title``, with ``points`` or ``paths`` and their ``classes``, or
            with ``extent`` and ``values``.

    Returns:
        The picture, or None if it cannot be drawn.

    Example:
        >>> make_picture({"kind": "points", "title": "x(0)", "points": [[0, 1]], "classes": [2]})
        Picture(kind='points', title='x(0)', points=((0.0, 1.0),), ..., classes=(2,), ...)
        >>> make_picture({"kind": "points", "points": [[0, None]]}) is None
        True
    """
    kind, title = content.get("kind"), str(content.get("title", ""))
    make = {"points": _points, "paths": _paths, "grid": _grid}.get(str(kind))
    try:
        return make and make(title, content)
    except (TypeError, ValueError, KeyError):
        return None


def _points(title: str, content: dict[str, Any]) -> Picture:
    points = tuple(_point(point) for point in content["points"])
    classes = _classes(content, len(points))
    return Picture(
        "points", title, points=_thin(points, MAX_POINTS), classes=_thin(classes, MAX_POINTS)
    )


def _paths(title: str, content: dict[str, Any]) -> Picture:
    paths = tuple(_path(path) for path in content["paths"])
    classes = _classes(content, len(paths))
    return Picture("paths", title, paths=_thin(paths, MAX_PATHS), classes=_thin(classes, MAX_PATHS))


def _grid(title: str, content: dict[str, Any]) -> Picture:
    left, right, bottom, top = map(_finite, content["extent"])
    rows = [tuple(map(_finite, row)) for row in _thin(content["values"], MAX_CELLS)]
    if not rows or not rows[0] or len({len(row) for row in rows}) > 1:
        raise ValueError("rows of different lengths")
    if not (left < right and bottom < top):
        raise ValueError("an extent without area")
    values = tuple(_thin(row, MAX_CELLS) for row in rows)
    return Picture("grid", title, extent=(left, right, bottom, top), values=values)


def _finite(value: object) -> float:
    as_float = number(value)
    if as_float is None or not math.isfinite(as_float):
        raise ValueError(f"{value!r} is not a finite number")
    return as_float


def _point(values: Sequence[object]) -> Point:
    x, y = values
    return _finite(x), _finite(y)


def _path(values: Sequence[Sequence[object]]) -> tuple[Point, ...]:
    if not values:
        raise ValueError("a path without points")
    last = _point(values[-1])
    return (*(_point(point) for point in _thin(values[:-1], MAX_TIMES)), last)


def _classes(content: dict[str, Any], count: int) -> tuple[int, ...]:
    classes = tuple(int(_finite(value)) for value in content.get("classes") or ())
    if not count or (classes and len(classes) != count):
        raise ValueError("nothing to draw, or not as many classes as things to draw")
    return classes


def _thin(items: Sequence[T], limit: int) -> tuple[T, ...]:
    """Every k-th item, so that at most ``limit`` remain."""
    return tuple(items[:: max(1, math.ceil(len(items) / limit))])
