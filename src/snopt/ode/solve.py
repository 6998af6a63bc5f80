"""The time loop.

It advances from stop to stop, asks a stepper for attempts and a controller for step sizes, and
computes states at the requested times by dense output. For fixed-step methods every grid point is
a stop and no step is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from snopt.base.errors import SolveError
from snopt.base.transforms import transforming
from snopt.base.types import real_dtype
from snopt.ode.callbacks import Callbacks
from snopt.ode.controller import Controller
from snopt.ode.norms import rms
from snopt.ode.runge_kutta import Stepper
from snopt.ode.solution import Solution, SolveStats, Status

#: A last step may be this much longer than proposed, to avoid a tiny step after it.
STRETCH = 1.05


@dataclass(frozen=True)
class Step:
    """An accepted step, from ``(t, x)`` to ``(t1, x1)`` with signed size ``h``.

    Attributes:
        outputs: ``(index, theta)`` of each requested time in ``(t, t1]``; theta is 1 at the end.
    """

    t: float
    h: float
    t1: float
    x: Tensor
    x1: Tensor
    outputs: tuple[tuple[int, float], ...]


def fit(h: float, remaining: float) -> tuple[float, bool]:
    """Return the step to try before a stop, and whether it ends there.

    A step that would leave a short last step is halved instead: two equal steps cost the same and
    are more accurate.

    Example:
        >>> fit(0.4, 1.0), fit(0.6, 1.0), fit(0.96, 1.0)
        ((0.4, False), (0.5, False), (1.0, True))
    """
    if remaining <= STRETCH * h:
        return remaining, True
    if remaining < 2.0 * h:
        return 0.5 * remaining, False
    return h, False


def outputs_in(times: Sequence[float], first: int, t: float, h: float,
               t1: float) -> list[tuple[int, float]]:  # fmt: skip
    """Return ``(index, theta)`` of the times, from ``first`` on, in a step from ``t`` to ``t1``.

    Example:
        >>> outputs_in([0.0, 0.25, 0.5, 1.0], 1, 0.0, 0.5, 0.5)
        [(1, 0.5), (2, 1.0)]
    """
    found = []
    for index in range(first, len(times)):
        wanted = times[index]
        if (wanted - t1) * h > 0.0:
            break
        found.append((index, 1.0 if wanted == t1 else (wanted - t) / h))
    return found


def solve(
    stepper: Stepper,
    x0: Tensor,
    times: Sequence[float],
    *,
    controller: Controller | None = None,
    first_step: float | None = None,
    stops: Iterable[float] | None = None,
    jumps: frozenset[float] = frozenset(),
    perturb: bool = False,
    on_step: Callable[[Step], None] | None = None,
    until: Callable[[Step], bool] | None = None,
    callbacks: Callbacks | None = None,
) -> Solution:
    """Integrate from ``times[0]`` through all requested times.

    Args:
        stepper: the method with its field.
        x0: state at ``times[0]``.
        times: strictly monotone times, not checked here. The last one may be infinite if
            ``until`` ends the solve.
        controller: step-size control.
        first_step: first step to try, positive; None lets the stepper guess.
        stops: times at which a step must end, in order, including the last requested time.
        jumps: stops at which the field is discontinuous; slopes are evaluated again there.
        perturb: treat every stop, and the start, as a jump.
        on_step: receives every accepted step while the stepper still holds its stages.
        until: returns whether an accepted step is the last one.
        callbacks: callbacks of the user's field.

    Raises:
        SolveError: underflow, a non-finite state, or too many steps.

    Example:
        >>> from snopt.ode.runge_kutta import RungeKutta
        >>> from snopt.ode.tableau import RK4
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> stepper = RungeKutta(RK4, lambda t, x: -x, x0, None)
        >>> solution = solve(stepper, x0, [0.0, 1.0], stops=[0.5, 1.0])
        >>> abs(solution.states[-1].item() - math.exp(-1.0)) < 1e-3
        True
    """
    run = _Run(stepper, x0, times, controller or Controller(), on_step, until, callbacks)
    run.begin(first_step, after_jump=perturb or times[0] in jumps)
    for stop in stops if stops is not None else (times[-1],):
        if perturb or stop in jumps:
            run.jump(stop)
        else:
            run.advance(stop)
        if run.ended:
            break
    return run.finish()


def _neighbour(t: float, to: float, dtype: torch.dtype) -> float:
    """Return the number next to ``t``, towards ``to``, in the precision of the field's times."""
    real = real_dtype(dtype)
    return float(torch.nextafter(torch.tensor(t, dtype=real), torch.tensor(to, dtype=real)))


def _short_of(stop: float, t: float, dtype: torch.dtype) -> float:
    """Return the longest step from ``t`` that ends before ``stop`` in the field's precision."""
    real = real_dtype(dtype)
    start, goal = torch.tensor(t, dtype=real), torch.tensor(stop, dtype=real)
    # Exact where the two are close. Elsewhere the sum may be rounded up to the goal, but there
    # h and the sum have the same spacing, so one or two decrements suffice.
    h = torch.nextafter(goal, start) - start
    while h + start == goal and h != 0:
        h = torch.nextafter(h, torch.zeros_like(h))
    # If there is no number between the two, the step is negligible and may end at the stop.
    return float(h) or stop - t


@dataclass
class StepControl:
    """Step size and counts of one solve: proposes steps, and accepts or rejects attempts.

    Attributes:
        order: order of the error estimate plus one.
        eps: machine epsilon of the state.
        h: the proposed step size.
        tried: the signed step of the last attempt.
    """

    controller: Controller
    order: int
    eps: float
    h: float = math.inf
    tried: float = 0.0
    stats: SolveStats = field(default_factory=lambda: SolveStats(solves=1))

    def __post_init__(self) -> None:
        self.ratio, self.failed = 1e-4, 0.0  # error ratios of the last accepted and rejected

    def begin(self, h: float) -> None:
        """Set the first step size."""
        h = h if math.isfinite(h) else 1.0  # the interval has no end and the guess failed
        self.h = min(max(h, self.controller.min_step), self.controller.max_step)

    def accepts(self, size: float, ratio: float) -> bool:
        """Return whether an attempt is accepted, and set the next step."""
        control = self.controller
        factor = control.factor(ratio, self.ratio, self.order)
        if not ratio <= 1.0 and not (size <= control.min_step and math.isfinite(ratio)):
            self.stats.rejected += 1
            self.failed = ratio
            self.h = max(size * factor, control.min_step)
            return False
        proposed = size * factor
        if factor >= control.ifactor:
            # A step shortened by a stop gives little information about much longer steps.
            proposed = max(proposed, self.h)
        self.h = min(max(proposed, control.min_step), control.max_step)
        self.ratio = ratio
        if self.stats.first_step is None:
            self.stats.first_step = self.h
        return True

    @property
    def exhausted(self) -> bool:
        """Whether there were ``max_steps`` attempts."""
        return self.stats.accepted + self.stats.rejected >= self.controller.max_steps

    def stuck(self, t: float, t1: float, size: float, end: float, landing: bool) -> Status | None:
        """Return the reason why a step from ``t`` to ``t1`` cannot advance, or None."""
        far = max(abs(t), abs(end)) if math.isfinite(end) else abs(t)
        if (size < 0.25 * self.eps * far and not landing) or t1 == t:
            return Status.UNDERFLOW if math.isfinite(self.failed) else Status.NON_FINITE
        return None

    def failure(
        self, status: Status, t: float, end: float, x: Tensor, where: str = ""
    ) -> SolveError:
        """Return the error for a solve to ``end`` that stopped at ``(t, x)``."""
        return status.error(
            t=t,
            t1=end,
            step=self.tried or self.h,
            norm=float(rms(x.detach())),
            steps=self.stats.accepted + self.stats.rejected,
            where=where,
        )


@dataclass
class _Run:
    """The state of one solve."""

    stepper: Stepper
    x: Tensor
    times: Sequence[float]
    controller: Controller
    on_step: Callable[[Step], None] | None
    until: Callable[[Step], bool] | None
    callbacks: Callbacks | None

    def __post_init__(self) -> None:
        self.t, self.end, self.ended = self.times[0], self.times[-1], False
        self.sign = 1.0 if self.end > self.t else -1.0
        self.states = [self.x]
        eps = torch.finfo(self.x.dtype).eps
        self.control = StepControl(self.controller, self.stepper.error_order, eps)

    def begin(self, first_step: float | None, after_jump: bool) -> None:
        """Start the stepper and choose the first step."""
        if after_jump:
            self.t = _neighbour(self.t, self.end, self.x.dtype)
        self.stepper.start(self.t, self.x)
        if self.stepper.adaptive:
            span = self.end - self.t
            self.control.begin(self.stepper.guess(span) if first_step is None else abs(first_step))

    def jump(self, stop: float) -> None:
        """Step up to a discontinuity of the field, and restart just after it."""
        self.advance(stop, short=True)
        if not self.ended:
            self.t = _neighbour(stop, self.end, self.x.dtype)
            self.stepper.start(self.t, self.x)

    def advance(self, stop: float, short: bool = False) -> None:
        """Step until ``stop``; with ``short``, evaluate the field only before it."""
        while self.t != stop and not self.ended:
            size, landing = fit(self.control.h, abs(stop - self.t))
            signed = self.sign * size
            if landing:
                signed = _short_of(stop, self.t, self.x.dtype) if short else stop - self.t
            t1 = stop if landing else self.t + signed
            self._check_progress(size, landing, t1)
            self._call("callback_step", size)
            x1, ratio = self.stepper.attempt(self.t, signed, self.x)
            self.control.tried = signed
            if self.stepper.adaptive and not self.control.accepts(size, ratio):
                self._call("callback_reject_step", size)
                continue
            if self.stepper.adaptive:
                self._call("callback_accept_step", size)
            self._take(signed, t1, x1)

    def finish(self) -> Solution:
        """Check the last state and return the solution."""
        unchecked = not self.stepper.adaptive and not transforming()  # vmap cannot read numbers
        if unchecked and not bool(torch.isfinite(self.x.detach()).all()):
            raise self._failure(Status.NON_FINITE)
        stats = self.control.stats
        stats.nfe_forward = self.stepper.nfe
        if self.stepper.adaptive and stats.accepted:
            stats.last_step = abs(self.control.tried)
        return Solution(self.states, stats)

    def _take(self, h: float, t1: float, x1: Tensor) -> None:
        """Record an accepted step: outputs, counts, listener."""
        outputs = outputs_in(self.times, len(self.states), self.t, h, t1)
        for _, theta in outputs:
            self.states.append(x1 if theta == 1.0 else self.stepper.interpolate(theta))
        self.control.stats.accepted += 1
        step = Step(self.t, h, t1, self.x, x1, tuple(outputs))
        if self.on_step is not None:
            self.on_step(step)
        self.ended = self.until is not None and self.until(step)
        self.stepper.accept()
        self.t, self.x = t1, x1

    def _call(self, name: str, size: float) -> None:
        if self.callbacks is not None:
            self.callbacks.call(name, self.t, self.x, size)

    def _check_progress(self, size: float, landing: bool, t1: float) -> None:
        """Raise if the solve cannot advance or has too many steps."""
        if self.control.exhausted:
            raise self._failure(Status.MAX_STEPS if self.until is None else Status.NO_EVENT)
        if self.stepper.adaptive:
            reason = self.control.stuck(self.t, t1, size, self.end, landing)
            if reason is not None:
                raise self._failure(reason)

    def _failure(self, status: Status) -> SolveError:
        return self.control.failure(status, self.t, self.end, self.x)
