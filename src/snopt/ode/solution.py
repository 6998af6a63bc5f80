"""The result of a solve, and the errors of a failed one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from snopt.base import errors


@dataclass
class SolveStats:
    """Counts of one solve, or sums over several. The backward pass adds its counts when it runs.

    Attributes:
        nfe_forward: field evaluations of the forward solve.
        nfe_backward: field evaluations of the backward pass, each with its pull-back.
        accepted: accepted steps of the forward solve.
        rejected: rejected steps of the forward solve.
        first_step: step size with which the same solve should start next time.
        last_step: size of the last accepted step, with which a solve in the other direction starts.
            (The controller's proposal applies to times beyond the end only.)
        solves: number of solves.
    """

    nfe_forward: int = 0
    nfe_backward: int = 0
    accepted: int = 0
    rejected: int = 0
    first_step: float | None = None
    last_step: float | None = None
    solves: int = 0

    def reset(self) -> None:
        """Set every count to zero.

        Example:
            >>> stats = SolveStats(nfe_forward=14)
            >>> stats.reset()
            >>> stats.nfe_forward
            0
        """
        self.__dict__.update(SolveStats().__dict__)

    def add(self, other: SolveStats) -> None:
        """Add the counts of another solve, and copy its step sizes."""
        for name in ("nfe_forward", "nfe_backward", "accepted", "rejected", "solves"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_step, self.last_step = other.first_step, other.last_step


class Status(Enum):
    """Reasons for a failed solve: the exception to raise, and its message with the remedy."""

    UNDERFLOW = (
        errors.StepSizeUnderflow,
        "the step size fell below the resolution of the time. The field is stiff or diverges "
        "here, or the tolerance is below the precision of the dtype: loosen rtol/atol, use "
        "float64, bound the field (tanh, weight decay), or try method='scipy_solver'",
    )
    NON_FINITE = (
        errors.NonFiniteState,
        "the field or the state is NaN or infinite. Check the inputs and the parameters for "
        "NaN, lower the learning rate, bound the field, or shorten the horizon",
    )
    MAX_STEPS = (
        errors.MaxStepsExceeded,
        "exceeded max_num_steps. The field is stiff or the tolerance very fine: "
        "loosen rtol/atol, or raise options={'max_num_steps': ...}",
    )
    NO_EVENT = (
        errors.MaxStepsExceeded,
        "exceeded max_num_steps before the event function changed its sign. "
        "Check its sign at the start and the direction of time, or raise "
        "options={'max_num_steps': ...}",
    )
    GAVE_UP = (
        errors.SolveError,
        "SciPy's solver failed at this time. The field is stiff or diverges: loosen "
        "rtol/atol, bound the field (tanh, weight decay), or try another method",
    )

    def error(
        self, *, t: float, t1: float, step: float, norm: float, steps: int, where: str = ""
    ) -> errors.SolveError:
        """Return the exception for a solve to ``t1`` that stopped at ``t``.

        ``t1`` is infinite if the solve should end at an event. ``step`` is NaN if it is not known,
        ``steps`` counts attempts, and ``where`` is a prefix of the message.
        """
        kind, reason = self.value
        goal = f"{t1:.6g}" if math.isfinite(t1) else "an event"
        size = f"{norm:.3g}" if math.isfinite(norm) else "not finite"
        attempt = "" if math.isnan(step) else f", step {step:.3g} (attempt {steps})"
        message = (
            f"{where}at t = {t:.6g} (target {goal}){attempt}, RMS of the state {size}: {reason}."
        )
        error: errors.SolveError = kind(message, t=t, step=step, norm=norm)
        return error


@dataclass
class Solution:
    """The result of :func:`snopt.ode.solve.solve`; a solve that fails raises.

    Attributes:
        states: states at the requested times, the initial one first.
        stats: counts of this solve.
    """

    states: list[Tensor]
    stats: SolveStats = field(default_factory=SolveStats)
