"""Solving until an event: a sign change of a function of time and state.

After every accepted step the sign is compared with that at the start of the solve. If it has
changed, bisection on the interpolation inside the step finds the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snopt.base.errors import InvalidOption
from snopt.base.packing import Packing
from snopt.base.types import State, time_tensor
from snopt.ode.controller import UNBOUNDED, Controller
from snopt.ode.options import options_of
from snopt.ode.runge_kutta import Stepper
from snopt.ode.settings import Settings
from snopt.ode.solution import SolveStats
from snopt.ode.solve import Step

#: An event function of a time and a packed state; its value is a 0-d tensor.
PackedEvent = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Event:
    """The time of an event, the packed state there, and counts of the search.

    Attributes:
        ends: end times of all steps, the last one after the event; None for methods whose steps
            are not known.
    """

    t: float
    x: Tensor
    ends: tuple[float, ...] | None
    stats: SolveStats


def combined(event_fn: Callable[[Tensor, State], Tensor], t0: Tensor, y0: State) -> Callable[
    [Tensor, State], Tensor
]:  # fmt: skip
    """Combine the entries of an event function into one number.

    The result is positive at the start and reaches zero at the first sign change of an entry.

    Example:
        >>> both = combined(lambda t, x: torch.stack([x - 3.0, x + 1.0]), torch.tensor(0.0),
        ...                 torch.tensor(1.0))
        >>> both(torch.tensor(0.0), torch.tensor(2.5))
        tensor(0.5000)
    """
    with torch.no_grad():
        signs = torch.sign(event_fn(t0, y0))
    return lambda t, y: torch.min(event_fn(t, y) * signs)


def find_event(settings: Settings, stepper: Stepper, x0: Tensor, t0: float, sign: float,
               event: PackedEvent, packing: Packing) -> Event:  # fmt: skip
    """Solve in the direction of ``sign`` until the event function changes its sign.

    The time is accurate to ``atol`` with respect to the computed solution.

    Raises:
        InvalidOption: fixed-step method without ``step_size``.
        MaxStepsExceeded: no event within ``max_num_steps``.
    """
    check_steps(settings)
    if settings.controller.max_steps == UNBOUNDED:
        bounded = replace(settings.controller, max_steps=Controller.max_steps)
        settings = settings.replaced(controller=bounded)

    def side(t: float, x: Tensor) -> float:
        return float(torch.sign(event(time_tensor(t, x), x)))

    start, ends, found = side(t0, x0), [t0], [(t0, x0)]
    if start == 0.0:
        return Event(t0, x0, (), SolveStats(solves=1))
    atol = settings.tolerance(packing).atol
    tol = float(atol.min()) if isinstance(atol, Tensor) else atol

    def crossed(step: Step) -> bool:
        ends.append(step.t1)
        if side(step.t1, step.x1) == start:
            return False

        def at(t: float) -> Tensor:
            return stepper.interpolate((t - step.t) / step.h)

        a, b = step.t, step.t1
        while abs(b - a) > max(tol, 4e-16 * max(abs(a), abs(b))):
            middle = 0.5 * (a + b)
            a, b = (middle, b) if side(middle, at(middle)) == start else (a, middle)
        found[0] = (0.5 * (a + b), at(0.5 * (a + b)))
        return True

    solution = settings.run(stepper, x0, (t0, sign * math.inf), until=crossed)
    return Event(*found[0], tuple(ends[1:]), solution.stats)


def check_steps(settings: Settings) -> None:
    """Raise InvalidOption for an event search with fixed steps of unknown size."""
    fixed = "step_size" in options_of(settings.method)
    if fixed and (settings.options or {}).get("step_size") is None:
        raise InvalidOption(
            f"method={settings.method!r} takes fixed steps, and a solve until an event has no end "
            "time to derive the step size from; pass options={'step_size': ...}."
        )
