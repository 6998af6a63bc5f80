"""Alternating solves and updates, several of them in one compiled call.

Between the observations of a time series, a solve often takes a single step. A compiled block then
evaluates a whole run of steps and updates at once, on autograd's own tape, and reads all their
error ratios afterwards. The controller judges them as it judges single solves. If it would have
chosen another step anywhere, the run is discarded, and its first interval is solved on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from snopt.adjoint.request import Adjoint, Request
from snopt.base.packing import Packing
from snopt.base.types import State, real_dtype
from snopt.ode.solution import SolveStats
from snopt.ode.solve import StepControl, fit

#: For each interval of a run, the tensors beside ``x`` and those among the arguments.
Own = Sequence[tuple[Sequence[Tensor], Sequence[Tensor]]]

#: Intervals in one compiled call. Longer runs save little time and take much longer to compile.
RUN = 4


@dataclass(frozen=True)
class Interval:
    """One solve and the arguments of the update after it.

    Attributes:
        times: start and end of the solve.
        args: arguments of the update after the states: tensors, modules and None.
        beside: tensors beside ``x`` in the state at the start, ``(x, *beside)``.
    """

    times: Sequence[float]
    args: tuple[Any, ...]
    beside: tuple[Tensor, ...] = ()

    @property
    def span(self) -> float:
        """Length of the interval."""
        return abs(self.times[1] - self.times[0])

    def start(self, x: State) -> State:
        """Return the state at the start."""
        return (x, *self.beside) if self.beside else x


@dataclass(frozen=True)
class RunKind:
    """What is constant in the compiled function of a run.

    Attributes:
        function: the update.
        count: the number of intervals.
        shared: for each argument of the update, whether all intervals share it: modules and None.
        missing: for each argument, whether it is None.
    """

    function: Callable[..., Tensor]
    count: int
    shared: tuple[bool, ...]
    missing: tuple[bool, ...]

    @staticmethod
    def of(function: Callable[..., Tensor], intervals: Sequence[Interval]) -> RunKind | None:
        """Return the kind of a run, or None if its intervals differ in kind.

        Example:
            >>> x, intervals = torch.ones(1), [Interval((0.0, 1.0), (None, torch.ones(1)))] * 2
            >>> RunKind.of(torch.add, intervals).shared
            (True, False)
        """
        first = intervals[0]
        shared = tuple(not isinstance(arg, Tensor) for arg in first.args)
        for other in intervals[1:]:
            if [part.shape for part in other.beside] != [part.shape for part in first.beside]:
                return None
            for common, arg, own in zip(shared, first.args, other.args, strict=True):
                if not (own is arg if common else isinstance(own, Tensor)):
                    return None
        missing = tuple(arg is None for arg in first.args)
        return RunKind(function, len(intervals), shared, missing)

    def split(self, intervals: Sequence[Interval]) -> tuple[list[Any], Own]:
        """Return the arguments that all intervals share, and for each interval its own tensors."""
        common = [arg for arg, is_shared in zip(intervals[0].args, self.shared, strict=True)
                  if is_shared]  # fmt: skip
        own = [
            (interval.beside, [arg for arg in interval.args if isinstance(arg, Tensor)])
            for interval in intervals
        ]
        return common, own

    def joined(self, common: Sequence[Any], own: Sequence[Tensor]) -> list[Any]:
        """Return the arguments of one interval in their order."""
        left, right = iter(common), iter(own)
        return [next(left) if is_shared else next(right) for is_shared in self.shared]


def run_function(step: Callable[..., tuple[Tensor, ...]], kind: RunKind,
                 packing: Packing) -> Callable[..., tuple[Tensor, Tensor]]:  # fmt: skip
    """Return a function that takes one step in each interval and applies the update after it.

    It takes the packed state at the start, ``(t, h)`` for each interval, and what
    :meth:`RunKind.split` returns. Its values are the last update and the error ratios.
    """

    def run(x: Tensor, th: Tensor, common: Sequence[Any], own: Own) -> tuple[Tensor, Tensor]:
        value, ratios = x, []
        for k, (beside, args) in enumerate(own):
            start = packing.pack((value, *beside)) if beside and k else value
            end, _, ratio = step(start, None, th[k], None)
            ratios.append(ratio)
            given = kind.joined(common, args)
            value = kind.function(packing.unpack(end), packing.unpack(start), *given)
        return value, torch.stack(ratios)

    return run


def begun(request: Request, carried: float | None, eps: float) -> StepControl:
    """Return the step control of a solve that starts with a carried step size."""
    tableau, own = request.settings.tableau, request.settings.first_step
    assert tableau is not None
    control = StepControl(request.settings.controller, tableau.error_order, eps)
    control.begin((carried or 0.0) if own is None else own)
    return control


def single_steps(request: Request, intervals: Sequence[Interval], ratios: Sequence[float],
                 eps: float, follows: bool) -> list[SolveStats] | None:  # fmt: skip
    """Return the counts of solves with these error ratios, or None if one is not a single step.

    Args:
        request: the first solve.
        intervals: the interval of each solve.
        ratios: the error ratio of a step over each interval.
        eps: machine epsilon of the state.
        follows: whether a solve starts with the step size that the previous one has proposed.
    """
    tableau, counts = request.settings.tableau, []
    assert tableau is not None
    carried = request.first_step
    for interval, ratio in zip(intervals, ratios, strict=True):
        control = begun(request, carried, eps)
        size, landing = fit(control.h, interval.span)
        if not landing or not control.accepts(size, ratio):
            return None
        stats = control.stats
        stats.accepted, stats.nfe_forward, stats.last_step = 1, tableau.stages + 1, size
        counts.append(stats)
        carried = stats.first_step if follows else carried
    return counts


@dataclass(frozen=True)
class Followed:
    """The value of an update after a solve.

    Attributes:
        value: the value.
        done: the number of solves in the same compiled call.
        wasted: whether a run of several was evaluated and discarded.
    """

    value: Tensor
    done: int = 0
    wasted: bool = False


class RunSteps(Protocol):
    """Compiled steps, for one structure of states."""

    def run(self, kind: RunKind, packing: Packing) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return :func:`run_function`, compiled."""


class Compiled(Protocol):
    """The adjoint of a compiled block."""

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor],
              joined: Joined | None = None) -> list[Tensor]:  # fmt: skip
        """Solve the first interval of ``joined``, or several of them with their updates."""


class Joined(Adjoint):
    """The adjoint of a compiled block for one solve that updates and further solves follow.

    Attributes:
        value: the value of the last update in the compiled call; None if the first interval was
            solved without its update.
        done: the number of intervals in the compiled call.
        wasted: whether a run of several intervals was evaluated and discarded.
    """

    name = "checkpoint"

    def __init__(self, owner: Compiled, function: Callable[..., Tensor],
                 intervals: Sequence[Interval], follows: bool) -> None:  # fmt: skip
        self._owner, self._function, self._follows = owner, function, follows
        self.intervals = intervals
        self.value: Tensor | None = None
        self.done, self.wasted = 0, False

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve with the adjoint of the block; see :meth:`Adjoint.solve`."""
        return self._owner.solve(request, x0, params, self)

    def runs(self, request: Request, x0: Tensor) -> list[int]:
        """Return how many intervals to try in one call: all if all look like one step, and one."""
        if request.settings.stops:
            return []
        h = begun(request, request.first_step, torch.finfo(x0.dtype).eps).h
        counts = dict.fromkeys((len(self.intervals), 1))
        return [n for n in counts if all(each.span <= h for each in self.intervals[:n])]

    def attempt(self, count: int, request: Request, x0: Tensor, steps: RunSteps) -> bool:
        """Evaluate ``count`` intervals on autograd's tape; return whether each is a single step."""
        intervals = self.intervals[:count]
        kind = RunKind.of(self._function, intervals)
        if kind is None:
            return False
        th = torch.tensor(
            [(t, end - t) for t, end in (each.times for each in intervals)],
            dtype=real_dtype(x0.dtype), device=x0.device,
        )  # fmt: skip
        value, ratios = steps.run(kind, request.packing)(x0, th, *kind.split(intervals))
        eps = torch.finfo(x0.dtype).eps
        counts = single_steps(request, intervals, ratios.tolist(), eps, self._follows)
        if counts is None:
            self.wasted = self.wasted or count > 1
            return False
        for stats in counts:
            request.took(stats)
        self.value, self.done = value, count
        return True
