r"""Solves that end at an event, and the gradient of the event's time.

The time :math:`t^*` of an event is where :math:`g(t^*, x(t^*)) = 0`. By the implicit function
theorem a change of the state at a fixed time, :math:`\delta x`, or of :math:`g` itself moves it by

.. math::
    \delta t^* = -\frac{g_x\, \delta x + \delta g}{g_t + g_x F},

and the state at the event by :math:`\delta x + F\, \delta t^*`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from snopt.adjoint.adjoints import Reversible
from snopt.adjoint.dispatch import Replay, differentiable_solve
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.request import Adjoint, edge_field
from snopt.base.context import Context, moving, with_context
from snopt.base.errors import GradientError, InvalidState, InvalidTimes
from snopt.base.isolation import RandomState, modules_of, private_buffers
from snopt.base.packing import Packing
from snopt.base.types import Field, State, leaves, real_dtype, time_tensor
from snopt.ode.blackbox import black_box_event
from snopt.ode.callbacks import Callbacks
from snopt.ode.event import Event, check_steps, combined, find_event
from snopt.ode.reversible import AsynchronousLeapfrog
from snopt.ode.runge_kutta import Stepper
from snopt.ode.settings import Settings
from snopt.ode.solution import SolveStats
from snopt.ode.times import read_times

#: The user's event function of time and state.
EventFunction = Callable[[Tensor, State], Tensor]


def event_solve(func: Field, y0: State, t: Tensor | Sequence[float], event_fn: EventFunction,
                settings: Settings, adjoint: Adjoint, params: tuple[Tensor, ...] | None, *,
                observer: NodeObserver | None = None,
                stats: SolveStats | None = None,
                context: Context = None) -> tuple[Tensor, State]:  # fmt: skip
    """Solve until an event; return its time, and the states at the start and at the event.

    ``t`` is the start and any time in the direction of the solve. The search keeps no tape. If a
    gradient may be needed, the adjoint then solves the same steps again. Gradients are those at a
    fixed time.
    """
    times = read_times(t)
    if len(times) != 2:
        raise InvalidTimes(
            f"got {len(times)} times with event_fn; pass two: the start, and any time in the "
            "direction of the solve."
        )
    packing = Packing.of(y0)
    if not sum(packing.sizes):
        raise InvalidState("the initial state has no entries, so there is no event to find.")
    x0, start = packing.pack(y0).detach(), event_times(t, y0)
    watched = [*leaves(y0), *(params or ()), *moving(context), start]
    live = torch.is_grad_enabled() and (params is None or any(x.requires_grad for x in watched))
    before = RandomState(x0.device)
    with torch.no_grad(), ExitStack() as scope:
        for module in modules_of(func) if live else ():
            scope.enter_context(private_buffers(module))  # the second solve updates buffers
        bound = with_context(func, context)
        event = _search(func, bound, x0, times, event_fn, settings, adjoint, packing)
    if live and before.moved():
        raise GradientError(
            "the field draws random numbers (dropout, noise), so the event cannot be located "
            "again for the gradient; draw them once and make them part of the state, or "
            "solve under torch.no_grad()."
        )
    event_t = start.new_tensor(event.t)
    if not live or event.t == times[0]:
        if stats is not None:
            stats.__dict__.update(event.stats.__dict__)
        return event_t, packing.unpack(torch.stack([packing.pack(y0), event.x]))
    later = [event.t]
    if event.ends is not None and event.ends[-1] != event.t:
        later.append(event.ends[-1])
    wide = start[:1] if start.device.type == "mps" else start[:1].double()
    states, _ = differentiable_solve(
        func, y0, torch.cat([wide, wide.new_tensor(later)]), settings, adjoint, params,
        observer=observer, stats=stats, replay=Replay(event.ends, event.stats.nfe_forward),
        context=context,
    )  # fmt: skip
    if stats is not None:
        stats.rejected = event.stats.rejected
    return event_t, packing.unpack(torch.stack(states[:2]))


def event_times(t: Tensor | Sequence[float] | float, y0: State) -> Tensor:
    """Return times as a tensor; its dtype is that of the event's time.

    Numbers, and tensors of whole numbers, get the precision of the state, at least float32.

    Example:
        >>> event_times([0, 0.5], torch.ones(1, dtype=torch.float64))
        tensor([0.0000, 0.5000], dtype=torch.float64)
    """
    if isinstance(t, Tensor) and t.is_floating_point():
        return t
    Packing.of(y0)  # raises an error for what is not a state
    dtype = torch.promote_types(real_dtype(next(leaves(y0)).dtype), torch.float32)
    return torch.as_tensor(t, dtype=dtype)


def _search(func: Field, bound: Field, x0: Tensor, times: Sequence[float],
            event_fn: EventFunction, settings: Settings, adjoint: Adjoint,
            packing: Packing) -> Event:  # fmt: skip
    """Find the event without a tape."""
    settings = settings.calling(Callbacks.of(func, packing.unpack))
    field = edge_field(bound, packing, x0)
    single = combined(event_fn, time_tensor(times[0], x0), packing.unpack(x0))

    def event(t: Tensor, x: Tensor) -> Tensor:
        return single(t, packing.unpack(x))

    if settings.black_box:
        check_steps(settings)
        t, solution = black_box_event(settings, field, x0, times, packing, event)
        return Event(t, solution.states[-1], None, solution.stats)
    sign = 1.0 if times[1] > times[0] else -1.0
    if isinstance(adjoint, Reversible):
        stepper: Stepper = AsynchronousLeapfrog(field, settings.tolerance(packing), adjoint.eta)
        found = find_event(settings, stepper, x0, times[0], sign, event, packing)
        # The steps of its adjoint end at requested times only.
        return Event(found.t, found.x, None, found.stats)
    stepper = settings.stepper(field, x0, packing)
    return find_event(settings, stepper, x0, times[0], sign, event, packing)


def link_event(func: Field, event_fn: EventFunction, y0: State, t0: Tensor, event_t: Tensor,
               solution: State, context: Context = None) -> tuple[Tensor, State]:  # fmt: skip
    """Return event time and states with the gradient of the event time.

    ``solution`` holds the states at the start and at the event, differentiable for a fixed time.
    """
    packing = Packing.of(y0)
    path = solution
    if not packing.single:
        path = torch.cat([part.reshape(len(part), -1) for part in leaves(solution)], dim=1)
    live, dtype = path[-1], real_dtype(path.dtype)
    t = event_t.detach().to(path.device, dtype)
    single = combined(
        event_fn, t0.detach().to(path.device, dtype), packing.unpack(path[0].detach())
    )
    now = single(t, packing.unpack(live))
    if not now.requires_grad:
        return event_t, solution
    field = edge_field(func, packing, path, context)
    with torch.no_grad():
        slope = field(t, live.detach())
    time, x = t.clone().requires_grad_(), live.detach().requires_grad_()
    value = single(time, packing.unpack(x))
    g_t, g_x = torch.autograd.grad(value, (time, x), allow_unused=True)
    rate = torch.zeros_like(t) if g_t is None else g_t
    if g_x is not None:
        rate = rate + (g_x.conj() * slope).sum().real
    crossing = bool(rate != 0)
    shift = (now.detach() - now) / (rate if crossing else 1.0)
    if not crossing:
        shift.register_hook(_no_derivative)
    moved = live + slope * (shift - shift.detach())
    linked = packing.unpack(torch.cat([path[:-1], moved[None]]))
    return event_t + (shift - shift.detach()).to(event_t), linked


def _no_derivative(gradient: Tensor) -> None:
    """Raise in a backward pass through an event that the path does not cross."""
    raise GradientError(
        "the event function does not change along the path at the event, so the event time has no "
        "derivative; choose a function that crosses zero there, or use "
        "snopt.odeint(..., event_fn=...), whose gradient is that at a fixed time."
    )
