"""A solution as an object that can be evaluated between the requested times."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.odeint import odeint, odeint_event
from snopt.adjoint.per_sample import odeint_per_sample
from snopt.base.compiler import uncompiled
from snopt.base.context import Context, with_context
from snopt.base.errors import GradientError, InvalidTimes
from snopt.base.types import Field, State, leaves, time_tensor
from snopt.ode.per_sample import total_stats
from snopt.ode.solution import SolveStats

#: A function that is applied to every tensor of a state.
OnTensor = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Trajectory:
    """The result of :func:`solve`.

    Attributes:
        ts: times of ``ys``: the requested ones, or the start and the time of the event.
        ys: states at these times, stacked on the first axis (of every tensor of a tuple).
        stats: evaluations and steps of the solve, without those of :meth:`evaluate`. With
            ``per_sample=True``, sums over the samples and the smallest step sizes.
        sample_stats: with ``per_sample=True``, the counts of every sample.
    """

    ts: Tensor
    ys: State
    stats: SolveStats
    _knots: list[float] = field(repr=False)
    _path: State = field(repr=False)
    _func: Field = field(repr=False)
    _settings: dict[str, Any] = field(repr=False)
    _odeint: Callable[..., State] = field(default=odeint, repr=False)
    sample_stats: tuple[SolveStats, ...] = field(default=(), repr=False)

    def evaluate(self, t: Tensor | Sequence[float] | float) -> State:
        """Return the states at any times between the first and the last one.

        Each is computed by a solve from the last known state before it, with the same settings.
        The result is differentiable like the solve, and with respect to ``t``.

        Args:
            t: a number or a tensor of numbers, in any order.

        Returns:
            the states; the shape of ``t`` comes first (in every tensor of a tuple).

        Raises:
            InvalidTimes: a time is outside the interval of the solve.
        """
        given = torch.as_tensor(t)
        values = [float(value) for value in given.detach().reshape(-1).tolist()]
        found = self._at(sorted(set(values), reverse=self._knots[-1] < self._knots[0]))
        states = _stacked([found[value] for value in values])
        if given.requires_grad and torch.is_grad_enabled():
            slopes = _stacked([self._slope(value, found[value]) for value in values])
            shift = given.reshape(-1) - given.detach().reshape(-1)
            states = _paired(states, slopes, shift)
        return _mapped(lambda x: x.reshape(*given.shape, *x.shape[1:]), states)

    def _at(self, times: Sequence[float]) -> dict[float, State]:
        """Return the states at times that are sorted in the direction of the solve."""
        knots = self._knots
        sign = 1.0 if knots[-1] >= knots[0] else -1.0
        places = [sign * knot for knot in knots]
        groups: dict[int, list[float]] = {}
        for time in times:
            if not places[0] <= sign * time <= places[-1]:
                raise InvalidTimes(
                    f"t = {time} is outside the solved interval from {knots[0]} to "
                    f"{knots[-1]}; choose times inside it, or solve a longer interval."
                )
            groups.setdefault(bisect.bisect_right(places, sign * time) - 1, []).append(time)
        found: dict[float, State] = {}
        for i, wanted in groups.items():
            start = _row(self._path, i)
            later = [time for time in wanted if time != knots[i]]
            states = self._odeint(self._func, start, [knots[i], *later], **self._settings)
            for j, time in enumerate([knots[i], *later]):
                found[time] = _row(states, j)
        return found

    def _slope(self, time: float, state: State) -> State:
        bound = with_context(self._func, self._settings.get("context"))
        with torch.no_grad():
            return bound(time_tensor(time, next(leaves(state))), _mapped(Tensor.detach, state))


@uncompiled
def solve(func: Field, y0: State, t: Tensor | Sequence[float], *,
          event_fn: Callable[[Tensor, State], Tensor] | None = None,
          context: Context = None, per_sample: bool = False,
          **settings: Any) -> Trajectory:  # fmt: skip
    """Solve like :func:`odeint`, and return a solution object.

    Args:
        func: the field ``F(t, x)``, or ``F(t, x, context)``.
        y0: initial state: a tensor or a nested tuple of tensors.
        t: strictly monotone times, the start first; or one row of times per sample of the batch,
            all with the same start.
        event_fn: function of time and state; the solve ends where an entry of its value changes
            sign, as in :func:`odeint_event`. ``t`` is the start and any time in the direction of
            the solve.
        context: third argument of the field.
        per_sample: use one step size per sample of the batch (first axis of the state), for batches
            of very different stiffness. The field must treat samples independently. It receives
            only the samples that have not reached the end, and ``t`` with one time per sample, of
            shape ``[samples, 1, ..., 1]``, which broadcasts with the state. Supports a single
            tensor as state, adaptive native methods, and ``adjoint="direct"``.
        **settings: further arguments of :func:`odeint`.

    Raises:
        InvalidTimes: rows of times have different starts.
        GradientError: rows of times require a gradient.

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> solution = solve(lambda t, x: -x, x0, [0.0, 1.0])
        >>> round(solution.ys[-1].item(), 6), round(solution.evaluate(0.5).item(), 6)
        (0.367879, 0.606531)
    """
    stats = settings.pop("stats", None) or SolveStats()
    more = {**settings, "context": context}
    if per_sample:
        return _per_sample(func, y0, t, stats, {**more, "event_fn": event_fn})
    if event_fn is not None:
        times = torch.as_tensor(t)
        end, ys = odeint_event(func, y0, times[0], event_fn=event_fn, stats=stats,
                               reverse_time=bool(times[-1] < times[0]), **more)  # fmt: skip
        ts = torch.stack([times[0].to(end), end])
        return Trajectory(ts, ys, stats, ts.tolist(), ys, func, more)
    ts, knots, picked = _requested(t)
    path = odeint(func, y0, t if picked is None else knots, stats=stats, **more)
    ys = path if picked is None else picked(path)
    return Trajectory(ts, ys, stats, knots, path, func, more)


def _per_sample(func: Field, y0: State, t: Tensor | Sequence[float], stats: SolveStats,
                settings: dict[str, Any]) -> Trajectory:  # fmt: skip
    """Solve with one step size per sample."""
    samples: list[SolveStats] = []
    ts, knots, picked = _requested(t)
    times = t if picked is None else knots
    path = odeint_per_sample(func, y0, times, samples=samples, **settings)
    ys = path if picked is None else picked(path)
    stats.__dict__.update(total_stats(samples).__dict__)
    return Trajectory(ts, ys, stats, knots, path, func, settings, odeint_per_sample, tuple(samples))


def _requested(t: Tensor | Sequence[float]) -> tuple[
    Tensor, list[float], Callable[[State], State] | None
]:  # fmt: skip
    """Return the times of ``ys``, the times to solve for, and a function that picks ``ys``."""
    if not (isinstance(t, Tensor) and t.ndim == 2):
        ts = torch.as_tensor(t)
        return ts, [float(time) for time in ts.tolist()], None
    knots, places = _shared(t)
    samples = torch.arange(len(t), device=t.device)

    def picked(path: State) -> State:
        return _mapped(lambda x: x[places.t().to(x.device), samples.to(x.device)], path)

    return t.t(), knots, picked


def _shared(t: Tensor) -> tuple[list[float], Tensor]:
    """Return the sorted times of all rows, and the index of each entry of ``t`` in them."""
    if t.requires_grad:
        raise GradientError(
            "there is no gradient with respect to rows of times; pass `t.detach()`, or "
            "one-dimensional times."
        )
    if not bool((t[:, 0] == t[0, 0]).all()):
        raise InvalidTimes(
            f"rows of times start between {float(t[:, 0].min())} and {float(t[:, 0].max())}, but "
            "the initial state belongs to one time; start all rows with the same time."
        )
    knots, places = torch.unique(t, return_inverse=True)
    if bool(t[0, -1] < t[0, 0]):
        knots, places = knots.flip(0), len(knots) - 1 - places
    return [float(knot) for knot in knots.tolist()], places


def _mapped(function: OnTensor, state: State) -> State:
    if isinstance(state, Tensor):
        return function(state)
    return tuple(_mapped(function, part) for part in state)


def _row(states: State, i: int) -> State:
    return _mapped(lambda x: x[i], states)


def _stacked(states: list[State]) -> State:
    if isinstance(states[0], Tensor):
        return torch.stack(states)
    return tuple(_stacked(list(parts)) for parts in zip(*states, strict=True))


def _paired(state: State, slope: State, shift: Tensor) -> State:
    """Return the states, moved along their slopes by ``shift``."""
    if isinstance(state, Tensor):
        return state + slope * shift.to(state).reshape(-1, *[1] * (state.ndim - 1))
    return tuple(_paired(*pair, shift) for pair in zip(state, slope, strict=True))
