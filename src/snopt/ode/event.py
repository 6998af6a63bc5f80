"""Solving until an event: a change of sign of a function of time and state.

After every accepted step the sign at its end is compared with that at the start of the solve. When
it has changed, the time is found by bisection on the step's own interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from snopt.base.errors import InvalidOption
from snopt.base.packing import Packing
from snopt.base.types import State, real_dtype
from snopt.ode.controller import UNBOUNDED, Controller
from snopt.ode.options import options_of
from snopt.ode.runge_kutta import Stepper
from snopt.ode.settings import Settings
from snopt.ode.solution import SolveStats
from snopt.ode.solve import Step

#: An event function of a time and a packed state; its value is one number.
PackedEvent = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Event:
    """Where and when a solve met its event.

    Attributes:
        t: The time of the event.
        x: The packed state there.
        ends: Where the steps on the way ended, the last one behind the event; None for methods
            whose steps are not known.
        stats: Counts of the search.
    """

    t: float
    x: Tensor
    ends: tuple[float, ...] | None
    stats: SolveStats


def combined(event_fn: Callable[[Tensor, State], Tensor], t0: Tensor, y0: State) -> Callable[
    [Tensor, State], Tensor
]:  # fmt: skip
    """One event function for several: it falls to zero where the first of them changes its sign.

    Args:
        event_fn: The user's event function; each entry of its value is an event of its own.
        t0: Start time.
        y0: Initial state.

    Returns:
        A function with one number as value, positive at the start.

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
    """Solve until the event function changes its sign.

    Args:
        settings: How to solve.
        stepper: The method, bound to its field.
        x0: Packed initial state.
        t0: Start time.
        sign: Direction of time, 1 or -1.
        event: The event function, one number on packed states.
        packing: How the state is packed.

    Returns:
        The event; its time is exact to ``atol`` as far as the solution is.

    Raises:
        InvalidOption: A fixed-step method without ``step_size``.
        MaxStepsExceeded: There was no event within ``max_num_steps``.
    """
    check_steps(settings)
    if settings.controller.max_steps == UNBOUNDED:
        bounded = replace(settings.controller, max_steps=Controller.max_steps)
        settings = settings.replaced(controller=bounded)

    def side(t: float, x: Tensor) -> float:
        time = torch.tensor(t, dtype=real_dtype(x.dtype), device=x.device)
        return float(torch.sign(event(time, x)))

    start, ends, found = side(t0, x0), [t0], [(t0, x0)]
    if start == 0.0:
        return Event(t0, x0, (), SolveStats(solves=1))
    tol = _resolution(settings, packing)

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
    """Refuse a search for an event whose steps nobody chooses.

    Args:
        settings: How to solve.

    Raises:
        InvalidOption: A fixed-step method without ``step_size``.
    """
    fixed = "step_size" in options_of(settings.method)
    if fixed and (settings.options or {}).get("step_size") is None:
        raise InvalidOption(
            f"method={settings.method!r} takes fixed steps, and until an event there is no end to "
            "divide into steps; give options={'step_size': ...}."
        )


def _resolution(settings: Settings, packing: Packing) -> float:
    """How finely to find the time of an event: as finely as the state, by ``atol``."""
    atol = settings.tolerance(packing).atol
    return float(atol.min()) if isinstance(atol, Tensor) else atol
