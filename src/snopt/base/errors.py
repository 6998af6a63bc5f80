"""Exceptions of the library; their messages name the value, the reason and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Integral
from typing import Any


class SolveError(RuntimeError):
    """A solve failed.

    Attributes:
        t: time at which the solve failed.
        step: step size of the last attempt.
        norm: root mean square of the state at ``t``.
    """

    def __init__(self, message: str, *, t: float, step: float, norm: float) -> None:
        super().__init__(message)
        self.t, self.step, self.norm = t, step, norm


class StepSizeUnderflow(SolveError):
    """The step size fell below the floating-point resolution of the time."""


class NonFiniteState(SolveError):
    """The field or the state is NaN or infinite."""


class MaxStepsExceeded(SolveError):
    """The solve exceeded ``max_num_steps``."""


class InvalidTimes(ValueError):
    """The requested times are not strictly monotone, too few, or not finite."""


class InvalidState(ValueError):
    """The initial state is not a tensor, has mixed dtypes or devices, or holds integers."""


class FieldOutputError(ValueError):
    """The field returned something that is not a derivative of the state."""


class UnknownName(ValueError):
    """No method, adjoint, option or other object has this name."""


class InvalidOption(ValueError):
    """The value of an option is invalid, or the method does not support the option."""


class GradientError(RuntimeError):
    """The chosen adjoint cannot compute the requested gradient."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> UnknownName:
    """Return the error for an unknown name; it lists the valid names and the closest match.

    Example:
        >>> print(unknown("method", "dopri6", ["dopri5", "rk4"]))
        unknown method 'dopri6'; did you mean 'dopri5'? Valid names: dopri5, rk4.
    """
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return UnknownName(f"unknown {kind} {name!r}{hint} Valid names: {', '.join(names)}.")


def check_count(name: str, value: Any, unit: str = "") -> None:
    """Raise ValueError unless a value is a whole number, at least 1.

    Example:
        >>> check_count("nodes", 0)
        Traceback (most recent call last):
        ...
        ValueError: nodes=0 must be a whole number, at least 1
    """
    if value is True or not isinstance(value, Integral) or int(value) < 1:
        raise ValueError(f"{name}={value!r} must be a whole number, at least 1{unit}")
