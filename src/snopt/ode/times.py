"""Validation of requested times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from snopt.base.errors import InvalidTimes


def read_times(t: Tensor | Sequence[float]) -> list[float]:
    """Return requested times as numbers; a single time requests the initial state.

    Raises:
        InvalidTimes: not one-dimensional, complex, or rejected by :func:`check_times`.

    Example:
        >>> import torch
        >>> read_times(torch.tensor([0.0, 0.5])), read_times(torch.arange(3))
        ([0.0, 0.5], [0.0, 1.0, 2.0])
    """
    if isinstance(t, (int, float)):
        raise InvalidTimes(
            f"t = {t} is a single number; pass the start time too: torch.tensor([0.0, {float(t)}])."
        )
    if isinstance(t, Tensor) and (t.ndim != 1 or t.dtype.is_complex):
        raise InvalidTimes(
            f"times must be a one-dimensional tensor of real numbers, got shape {tuple(t.shape)} "
            f"of {t.dtype}."
        )
    times = [float(value) for value in (t.tolist() if isinstance(t, Tensor) else t)]
    if len(times) == 1 and math.isfinite(times[0]):
        return times
    check_times(times)
    return times


def check_times(times: Sequence[float]) -> None:
    """Raise InvalidTimes unless there are two or more finite, strictly monotone times.

    Example:
        >>> check_times([0.0, 1.0, 0.5])
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidTimes: times must be strictly monotone, but t[1] = 1.0 is ...
    """
    if len(times) < 2:
        raise InvalidTimes(f"t = {list(times)}; pass at least a start and an end time.")
    sign = 1.0 if times[-1] > times[0] else -1.0
    for i, (a, b) in enumerate(pairwise(times)):
        if not (math.isfinite(a) and math.isfinite(b)):
            raise InvalidTimes(f"t[{i}] = {a}, t[{i + 1}] = {b}: times must be finite.")
        if not (b - a) * sign > 0.0:
            raise InvalidTimes(
                f"times must be strictly monotone, but t[{i}] = {a} is followed by "
                f"t[{i + 1}] = {b}; sort them and drop repeated ones (`torch.unique`)."
            )
