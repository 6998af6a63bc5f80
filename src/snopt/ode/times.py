"""Requested times, as users give them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor

from snopt.base.errors import InvalidTimes


def read_times(t: Tensor | Sequence[float]) -> list[float]:
    """Requested times as numbers, checked.

    Args:
        t: A one-dimensional tensor of real numbers, or a sequence of numbers.

    Returns:
        The times; one alone asks for the initial state.

    Raises:
        InvalidTimes: Not one-dimensional, not numbers, or not strictly monotone.

    Example:
        >>> import torch
        >>> read_times(torch.tensor([0.0, 0.5])), read_times(torch.arange(3))
        ([0.0, 0.5], [0.0, 1.0, 2.0])
    """
    if isinstance(t, (int, float)):
        raise InvalidTimes(
            f"times are {t}, one number; give the start as well: torch.tensor([0.0, {float(t)}])."
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
    """Check that requested times can be walked through.

    Args:
        times: The times.

    Raises:
        InvalidTimes: Fewer than two, not finite, repeated, or not monotone.

    Example:
        >>> check_times([0.0, 1.0, 0.5])
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidTimes: times must be strictly monotone, but t[1] = 1.0 is ...
    """
    if len(times) < 2:
        raise InvalidTimes(f"times are {list(times)}; give a start, and where to go from there.")
    sign = 1.0 if times[-1] > times[0] else -1.0
    for i, (a, b) in enumerate(pairwise(times)):
        if not (math.isfinite(a) and math.isfinite(b)):
            raise InvalidTimes(f"t[{i}] = {a}, t[{i + 1}] = {b}: times must be finite.")
        if not (b - a) * sign > 0.0:
            raise InvalidTimes(
                f"times must be strictly monotone, but t[{i}] = {a} is followed by "
                f"t[{i + 1}] = {b}; sort them and drop repeated ones (`torch.unique`)."
            )
