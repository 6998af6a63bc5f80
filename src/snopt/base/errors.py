"""What can go wrong in a solve, as exceptions that say what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SolveError(RuntimeError):
    """A solve could not be finished.

    Attributes:
        t: The time reached.
        step: The step that was tried there.
        norm: The root mean square of the state there.
    """

    def __init__(self, message: str, *, t: float, step: float, norm: float) -> None:
        """Keep the place of the failure next to its message.

        Args:
            message: The sentence shown to the user.
            t: The time reached.
            step: The step that was tried there.
            norm: The root mean square of the state there.
        """
        super().__init__(message)
        self.t, self.step, self.norm = t, step, norm


class StepSizeUnderflow(SolveError):
    """The step fell below what the time's floating-point numbers can resolve."""


class NonFiniteState(SolveError):
    """The field, or a state that it led to, is NaN or infinite."""


class MaxStepsExceeded(SolveError):
    """The solve exceeded ``max_num_steps``."""


class InvalidTimes(ValueError):
    """The requested times are not strictly monotone, too few, or not finite."""


class InvalidState(ValueError):
    """The initial state cannot be integrated (no tensor, mixed dtypes, integers)."""


class FieldOutputError(ValueError):
    """The field returned something that is not a derivative of the state."""


class UnknownName(ValueError):
    """A name (of a method, an adjoint, an option) that nobody registered."""


class InvalidOption(ValueError):
    """An option whose value makes no sense, or that does not go with the method."""


class GradientError(RuntimeError):
    """A gradient was asked for that this adjoint cannot give."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> UnknownName:
    """Make the error for a name that is not among the valid ones.

    Args:
        kind: What the name is of, for example ``"method"``.
        name: The offending name.
        valid: The names that would have worked.

    Returns:
        An exception to raise, which lists the valid names and the nearest one.

    Example:
        >>> print(unknown("method", "dopri6", ["dopri5", "rk4"]))
        unknown method 'dopri6'; did you mean 'dopri5'? Valid names: dopri5, rk4.
    """
    names = sorted(valid)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return UnknownName(f"unknown {kind} {name!r}{hint} Valid names: {', '.join(names)}.")
