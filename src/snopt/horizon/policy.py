r"""From averaged terms to the next horizon: three policies and their bounds.

A policy is a function of Q_T, Q_TT and Q_Tu δθ that returns δT of
:math:`T \leftarrow T - \eta\, \delta T` (``eq:feedback``); the bounds apply to the length
:math:`L = |T - t_0|`, in either direction of time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from snopt.base.errors import InvalidTimes, unknown

__all__ = [
    "POLICIES",
    "Bounds",
    "Policy",
    "PolicyFunction",
    "feedback",
    "gradient",
    "newton",
    "policy_function",
]

Policy: TypeAlias = Literal["feedback", "newton", "gradient"]
#: ``(Q_T, Q_TT, Q_Tu δθ) -> δT``; Q_TT may be zero.
PolicyFunction: TypeAlias = Callable[[float, float, float], float]


def feedback(Q_T: float, Q_TT: float, Q_Tu_du: float) -> float:
    r"""Return :math:`\delta T = (Q_T + Q_{Tu}\delta\theta) / |Q_{TT}|`, second-order feedback.

    Q_T was measured before the parameters changed by δθ; to first order it is now
    :math:`Q_T + Q_{Tu} \delta\theta`. The absolute value makes the step a descent step even if the
    curvature is negative.

    Example:
        >>> feedback(1.0, 2.0, -0.5)
        0.25
    """
    return (Q_T + Q_Tu_du) / abs(Q_TT)


def newton(Q_T: float, Q_TT: float, Q_Tu_du: float = 0.0) -> float:
    r"""Return :math:`\delta T = Q_T / |Q_{TT}|`: the same without feedback.

    Example:
        >>> newton(1.0, 2.0)
        0.5
    """
    return Q_T / abs(Q_TT)


def gradient(Q_T: float, Q_TT: float = 0.0, Q_Tu_du: float = 0.0) -> float:
    """Return δT = Q_T, the first-order baseline of Massaroli et al., *Dissecting Neural ODEs*.

    Example:
        >>> gradient(1.0, 2.0)
        1.0
    """
    return Q_T


POLICIES: dict[str, PolicyFunction] = {
    "feedback": feedback,
    "newton": newton,
    "gradient": gradient,
}


def policy_function(policy: Policy | PolicyFunction) -> PolicyFunction:
    """Return a policy by name; a function of Q_T, Q_TT and Q_Tu δθ is returned unchanged.

    Example:
        >>> policy_function("newton")(1.0, 2.0, 0.0)
        0.5
        >>> policy_function(lambda Q_T, Q_TT, Q_Tu_du: Q_T / (abs(Q_TT) + 1.0))(1.0, 3.0, 0.0)
        0.25
    """
    if callable(policy):
        return policy
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    return POLICIES[policy]


@dataclass(frozen=True)
class Bounds:
    """Bounds on the length of a solve.

    Attributes:
        minimum: shortest length.
        maximum: longest length.
        max_change: largest change in one update, relative to the length.
    """

    minimum: float
    maximum: float = math.inf
    max_change: float = math.inf

    def check(self, T: float, t0: float) -> None:
        """Raise ``InvalidTimes`` if an initial horizon is out of bounds."""
        if not self.minimum <= abs(T - t0) <= self.maximum:
            raise InvalidTimes(
                f"horizon = {T:g} has length {abs(T - t0):g} from t0 = {t0:g}; it must be between "
                f"minimum = {self.minimum:g} and maximum = {self.maximum:g}; change one of them"
            )

    def move(self, T: float, t0: float, change: float) -> float:
        """Return the horizon after a relative change of length, within bounds.

        Example:
            >>> Bounds(0.1, 2.0).move(-1.0, 0.0, 0.5)
            -1.5
            >>> Bounds(0.1, 2.0).move(1.0, 0.0, 3.0)
            2.0
            >>> Bounds(0.1, 2.0, max_change=0.5).move(1.0, 0.0, 3.0)
            1.5
        """
        change = min(max(change, -self.max_change), self.max_change)
        length = (1.0 + change) * abs(T - t0)
        return t0 + math.copysign(min(max(length, self.minimum), self.maximum), T - t0)
