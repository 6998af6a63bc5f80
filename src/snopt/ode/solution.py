"""What a solve returns: states, statistics, and a status whose value is its message."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from snopt.base import errors


@dataclass
class SolveStats:
    """Counts of one solve, or sums over several. Backward counts arrive with the backward pass.

    Attributes:
        nfe_forward: Field evaluations of the forward solve.
        nfe_backward: Field evaluations (each with its pull-back) of the backward pass.
        accepted: Accepted steps, forward.
        rejected: Rejected steps, forward.
        first_step: The step that the controller would open the same solve with next time.
        last_step: Size of the last accepted step. A solve in the other direction starts with it:
            the controller's proposal for the time beyond the end says nothing about the way back.
        solves: How many solves the counts are of.
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
        self.nfe_forward = self.nfe_backward = self.accepted = self.rejected = self.solves = 0
        self.first_step = self.last_step = None


class Status(Enum):
    """How a solve ended. The value is the sentence shown, the remedy included."""

    SUCCESS = "the solve reached the last requested time"
    UNDERFLOW = (
        "the step size fell below the resolution of the time. The field is stiff or explodes "
        "here, or the tolerance is finer than the dtype carries: loosen rtol/atol, use float64, "
        "bound the field (tanh, weight decay), or try method='implicit_adams'"
    )
    NON_FINITE = (
        "the field or the state is NaN or infinite. Check the inputs and the parameters for "
        "NaN, lower the learning rate, bound the field, or shorten the horizon"
    )
    MAX_STEPS = (
        "exceeded max_num_steps. The field is stiff or the tolerance very fine: "
        "loosen rtol/atol, or raise options={'max_num_steps': ...}"
    )
    NO_EVENT = (
        "exceeded max_num_steps before the event function changed its sign. "
        "Check its sign at the start and the direction of time, or raise "
        "options={'max_num_steps': ...}"
    )
    GAVE_UP = (
        "SciPy's solver does not get past this time. The field is stiff or explodes: loosen "
        "rtol/atol, bound the field (tanh, weight decay), or try another method"
    )

    def error(self, *, t: float, t1: float, step: float, norm: float, steps: int) -> Exception:
        """Make the exception for a failed solve.

        Args:
            t: The time reached.
            t1: The time that was to be reached, infinite on the way to an event.
            step: The step tried last.
            norm: The root mean square of the state at ``t``.
            steps: Attempted steps so far.

        Returns:
            The exception to raise.
        """
        kinds: dict[Status, type[errors.SolveError]] = {
            Status.UNDERFLOW: errors.StepSizeUnderflow,
            Status.NON_FINITE: errors.NonFiniteState,
            Status.MAX_STEPS: errors.MaxStepsExceeded,
            Status.NO_EVENT: errors.MaxStepsExceeded,
            Status.GAVE_UP: errors.SolveError,
        }
        goal = f"{t1:.6g}" if math.isfinite(t1) else "an event"
        size = f"{norm:.3g}" if math.isfinite(norm) else "not finite"
        message = (
            f"at t = {t:.6g} on the way to {goal}, step {step:.3g} (attempt {steps}), "
            f"state of root mean square {size}: {self.value}."
        )
        return kinds[self](message, t=t, step=step, norm=norm)


@dataclass
class Solution:
    """The result of :func:`snopt.ode.solve.solve`.

    Attributes:
        states: States at the requested times, the initial one first.
        stats: Counts of this solve.
        status: Always ``SUCCESS``: a solve that fails raises.
    """

    states: list[Tensor]
    stats: SolveStats = field(default_factory=SolveStats)
    status: Status = Status.SUCCESS
