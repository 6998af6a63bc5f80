"""The one time loop.

It walks from stop to stop, asks a stepper for attempts and a controller for step sizes, and
collects states at the requested times by dense output. Fixed-step methods are the same loop
with every grid point a stop and nothing to reject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snopt.base.transforms import transforming
from snopt.base.types import real_dtype
from snopt.ode.callbacks import Callbacks
from snopt.ode.controller import Controller
from snopt.ode.norms import rms
from snopt.ode.runge_kutta import Stepper
from snopt.ode.solution import Solution, SolveStats, Status

#: A last step may be this much longer than proposed, rather than leave a sliver behind.
STRETCH = 1.05


@dataclass(frozen=True)
class Step:
    """An accepted step, as told to a listener while the stepper still holds its stages.

    Attributes:
        t: Start.
        h: Signed step.
        t1: End.
        x: State at the start.
        x1: State at the end.
        outputs: ``(index, theta)`` of each requested time in ``(t, t1]``; theta is 1 at the end.
    """

    t: float
    h: float
    t1: float
    x: Tensor
    x1: Tensor
    outputs: tuple[tuple[int, float], ...]


def fit(h: float, remaining: float) -> tuple[float, bool]:
    """Fit a proposed step into what remains to the next stop.

    Args:
        h: Proposed step, positive.
        remaining: Distance to the stop, positive.

    Returns:
        The step to try, and whether it lands on the stop. What would leave a short last step
        is halved instead: two equal steps are as many and more accurate.

    Example:
        >>> fit(0.4, 1.0), fit(0.6, 1.0), fit(0.96, 1.0)
        ((0.4, False), (0.5, False), (1.0, True))
    """
    if remaining <= STRETCH * h:
        return remaining, True
    if remaining < 2.0 * h:
        return 0.5 * remaining, False
    return h, False


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
        stepper: The method, bound to its field.
        x0: State at ``times[0]``.
        times: Strictly monotone times (checked at the edge, not here). The last one may be
            infinite if ``until`` ends the solve.
        controller: Step-size control.
        first_step: First step to try, positive; None lets the stepper guess.
        stops: Times that a step must land on, in order, the last requested time last.
        jumps: Stops at which the field jumps, so that slopes are not carried over.
        perturb: Whether every stop, and the start, is a jump.
        on_step: Told of every accepted step.
        until: Asked after every accepted step whether it was the last one.
        callbacks: The user's callbacks.

    Returns:
        The states and the counts.

    Raises:
        SolveError: Underflow, a non-finite state, or too many steps.

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
    run.begin(first_step, behind=perturb or times[0] in jumps)
    for stop in stops if stops is not None else (times[-1],):
        if perturb or stop in jumps:
            run.jump(stop)
        else:
            run.advance(stop)
        if run.ended:
            break
    return run.finish()


def _neighbour(t: float, to: float, dtype: torch.dtype) -> float:
    """The number next to ``t`` in the direction of ``to`` that the field can tell from it."""
    real = real_dtype(dtype)
    return float(torch.nextafter(torch.tensor(t, dtype=real), torch.tensor(to, dtype=real)))


def _short_of(stop: float, t: float, dtype: torch.dtype) -> float:
    """The longest step from ``t`` whose end the field can tell from ``stop``."""
    real = real_dtype(dtype)
    start, goal = torch.tensor(t, dtype=real), torch.tensor(stop, dtype=real)
    # Exact where the two are close. Elsewhere the sum may be rounded up to the goal, but there
    # the spacing of h is that of the sum, so that one or two neighbours are enough.
    h = torch.nextafter(goal, start) - start
    while h + start == goal and h != 0:
        h = torch.nextafter(h, torch.zeros_like(h))
    # Where nothing lies between the two, a step too short to matter ends on the stop itself.
    return float(h) or stop - t


class _Run:
    """The moving parts of one solve."""

    def __init__(
        self,
        stepper: Stepper,
        x0: Tensor,
        times: Sequence[float],
        controller: Controller,
        on_step: Callable[[Step], None] | None,
        until: Callable[[Step], bool] | None,
        callbacks: Callbacks | None,
    ) -> None:
        self.stepper, self.times = stepper, times
        self.controller, self.callbacks = controller, callbacks
        self.on_step, self.until, self.ended = on_step, until, False
        self.t, self.x, self.end = times[0], x0, times[-1]
        self.sign = 1.0 if self.end > self.t else -1.0
        self.states, self.pending = [x0], 1
        self.stats = SolveStats(solves=1)
        self.ratio, self.failed = 1e-4, 0.0  # error ratios of the last accepted and rejected
        self.h = math.inf
        self.tried = 0.0
        self.eps = torch.finfo(x0.dtype).eps

    def begin(self, first_step: float | None, behind: bool) -> None:
        """Start the stepper, at or just behind the first time, and choose the first step."""
        if behind:
            self.t = _neighbour(self.t, self.end, self.x.dtype)
        self.stepper.start(self.t, self.x)
        if self.stepper.adaptive:
            h = self.stepper.guess(self.end - self.t) if first_step is None else abs(first_step)
            h = h if math.isfinite(h) else 1.0  # without an end the stepper may have no idea
            self.h = min(max(h, self.controller.min_step), self.controller.max_step)

    def jump(self, stop: float) -> None:
        """Step up to a jump of the field, and begin anew just behind it."""
        self.advance(stop, short=True)
        if not self.ended:
            self.t = _neighbour(stop, self.end, self.x.dtype)
            self.stepper.start(self.t, self.x)

    def advance(self, stop: float, short: bool = False) -> None:
        """Step until ``stop`` is reached, or until just short of it."""
        while self.t != stop and not self.ended:
            size, landing = fit(self.h, abs(stop - self.t))
            signed = self.sign * size
            if landing:
                signed = _short_of(stop, self.t, self.x.dtype) if short else stop - self.t
            t1 = stop if landing else self.t + signed
            self._check_progress(size, landing, t1)
            self._tell("callback_step", size)
            x1, ratio = self.stepper.attempt(self.t, signed, self.x)
            self.tried = signed
            if self.stepper.adaptive and not self._accepts(size, ratio):
                self._tell("callback_reject_step", size)
                continue
            if self.stepper.adaptive:
                self._tell("callback_accept_step", size)
            self._take(signed, t1, x1)

    def finish(self) -> Solution:
        """Check the last state and hand everything over."""
        unchecked = not self.stepper.adaptive and not transforming()  # vmap has no numbers
        if unchecked and not bool(torch.isfinite(self.x.detach()).all()):
            raise self._failure(Status.NON_FINITE)
        self.stats.nfe_forward = self.stepper.nfe
        if self.stepper.adaptive and self.stats.accepted:
            self.stats.last_step = abs(self.tried)
        return Solution(self.states, self.stats)

    def _accepts(self, size: float, ratio: float) -> bool:
        """Judge an attempt and set the next step; False when it is rejected."""
        control = self.controller
        factor = control.factor(ratio, self.ratio, self.stepper.error_order)
        if not ratio <= 1.0 and not (size <= control.min_step and math.isfinite(ratio)):
            self.stats.rejected += 1
            self.failed = ratio
            self.h = max(size * factor, control.min_step)
            return False
        proposed = size * factor
        if factor >= control.ifactor:
            # A step cut short by a stop says little about steps much longer than itself.
            proposed = max(proposed, self.h)
        self.h = min(max(proposed, control.min_step), control.max_step)
        self.ratio = ratio
        if self.stats.first_step is None:
            self.stats.first_step = self.h
        return True

    def _take(self, h: float, t1: float, x1: Tensor) -> None:
        """Collect outputs of an accepted step, tell the listener, move on."""
        outputs: list[tuple[int, float]] = []
        while self.pending < len(self.times):
            wanted = self.times[self.pending]
            if (wanted - t1) * self.sign > 0.0:
                break
            theta = 1.0 if wanted == t1 else (wanted - self.t) / h
            self.states.append(x1 if wanted == t1 else self.stepper.interpolate(theta))
            outputs.append((self.pending, theta))
            self.pending += 1
        self.stats.accepted += 1
        step = Step(self.t, h, t1, self.x, x1, tuple(outputs))
        if self.on_step is not None:
            self.on_step(step)
        self.ended = self.until is not None and self.until(step)
        self.stepper.accept()
        self.t, self.x = t1, x1

    def _tell(self, name: str, size: float) -> None:
        """Call one of the user's callbacks."""
        if self.callbacks is not None:
            self.callbacks.tell(name, self.t, self.x, size)

    def _check_progress(self, size: float, landing: bool, t1: float) -> None:
        """Stop a solve that can no longer advance, or that takes for ever."""
        if self.stats.accepted + self.stats.rejected >= self.controller.max_steps:
            raise self._failure(Status.MAX_STEPS if self.until is None else Status.NO_EVENT)
        if not self.stepper.adaptive:
            return
        far = max(abs(self.t), abs(self.end)) if math.isfinite(self.end) else abs(self.t)
        resolution = 0.25 * self.eps * far
        if (size < resolution and not landing) or t1 == self.t:
            finite = math.isfinite(self.failed)
            raise self._failure(Status.UNDERFLOW if finite else Status.NON_FINITE)

    def _failure(self, status: Status) -> Exception:
        """The exception for this place on the path."""
        return status.error(
            t=self.t,
            t1=self.end,
            step=self.tried or self.h,
            norm=float(rms(self.x.detach())),
            steps=self.stats.accepted + self.stats.rejected,
        )
