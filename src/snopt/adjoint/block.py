"""The NeuralODE block: a solve as a module."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.chain import RUN, Followed, Interval, Joined
from snopt.adjoint.compiled import CompiledCheckpoint
from snopt.adjoint.dispatch import differentiable_solve, find_params, read_solver, refuse_removed
from snopt.adjoint.numbers import ModuleWithNumbers
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.request import Adjoint
from snopt.base.compiler import uncompiled
from snopt.base.context import Context
from snopt.base.errors import InvalidTimes
from snopt.base.modules import hooked
from snopt.base.packing import Packing
from snopt.base.transforms import transforming
from snopt.base.types import State
from snopt.ode.solution import SolveStats
from snopt.ode.times import read_times


class NeuralODE(ModuleWithNumbers):
    r"""The map from :math:`x(t_0)` to :math:`x(t_1)` along :math:`\dot x = F(t, x, \theta)`.

    Each call starts with the step size of the previous one (``carry_step``), which saves the
    evaluations for guessing one. The horizon and the carried step are part of the ``state_dict``,
    so a restored run continues exactly. Both keep double precision when the model is cast.

    Attributes:
        field: the user's field.
        t0: start time.
        adjoint: how a solve is differentiated.
        stats: counts of the latest call, including its backward pass once it has run.
        totals: counts of all calls since ``totals.reset()``.
        observer: if set, receives nodes along the path during the backward pass of calls in
            training mode.
    """

    horizon_buffer: Tensor
    carried_buffer: Tensor

    def __init__(
        self,
        field: nn.Module,
        horizon: float = 1.0,
        *,
        t0: float = 0.0,
        rtol: Any = 1e-3,
        atol: Any = 1e-3,
        method: str | None = None,
        adjoint: str | Adjoint = "checkpoint",
        options: dict[str, Any] | None = None,
        compile: bool = False,
        carry_step: bool = True,
        **removed: Any,
    ) -> None:
        """Create a block.

        Args:
            field: a module with ``forward(t, x)``, or ``forward(t, x, context)`` if calls have a
                context; ``t`` is a 0-d tensor, ``x`` a tensor or a nested tuple of tensors.
            horizon: end time ``t1`` of the solve (T in the paper), before or after ``t0``.
            t0: start time.
            rtol: relative tolerance.
            atol: absolute tolerance.
            method: see :func:`snopt.odeint`; default dopri5, or the leapfrog under
                ``adjoint="reversible"``.
            adjoint: see :func:`snopt.odeint`.
            options: see :func:`snopt.odeint`.
            compile: compile whole steps and their pull-backs, for dopri5, tsit5 and bosh3 under
                ``adjoint="checkpoint"``. If compilation fails, the block warns and runs eagerly.
            carry_step: start with the step size of the previous call.
            **removed: removed arguments raise a TypeError with advice.

        Example:
            >>> class Decay(nn.Module):
            ...     def forward(self, t, x):
            ...         return -x
            >>> block = NeuralODE(Decay(), horizon=1.0, rtol=1e-6, atol=1e-6)
            >>> round(block(torch.ones(1)).item(), 4), block.stats.accepted > 0
            (0.3679, True)
        """
        super().__init__()
        refuse_removed(removed)
        if not isinstance(field, nn.Module):
            raise TypeError(
                f"field is a {type(field).__name__}; wrap it in an nn.Module to register its "
                "parameters, or use snopt.odeint."
            )
        self.field, self.t0, self.carry_step = field, float(t0), carry_step
        self.add_number("horizon", 0.0)
        self.add_number("carried", 0.0)
        self.horizon = horizon
        self._settings, self.adjoint = read_solver(method, rtol, atol, options, adjoint)
        if compile:
            self.adjoint = self.adjoint.compiled(field, self._settings)
        if self._settings.one_step:
            warnings.warn(
                f"method={self._settings.method!r} has fixed steps and no step size: each call "
                "takes one step over its whole interval; choose one with "
                "options={'step_size': ...}.",
                UserWarning,
                stacklevel=2,
            )
        self.stats, self.totals = SolveStats(), SolveStats()
        self.observer: NodeObserver | None = None

    @property
    def horizon(self) -> float:
        """End time ``t1``; assign to it to change the next call.

        Example:
            >>> block = NeuralODE(nn.Identity(), horizon=2.0)
            >>> block.horizon = 1.5
            >>> block.horizon
            1.5
        """
        return self.number("horizon")

    @horizon.setter
    def horizon(self, value: float) -> None:
        value = float(value)
        if not math.isfinite(value) or value == self.t0:
            raise InvalidTimes(
                f"horizon = {value} with t0 = {self.t0}; choose a finite horizon different from t0."
            )
        self.set_number("horizon", value)

    @uncompiled
    def forward(self, x: State, t: Tensor | Sequence[float] | None = None, *,
                context: Context = None) -> State:  # fmt: skip
        """Solve from ``x``.

        Args:
            x: state at the start.
            t: requested times, the start first; None requests the state at the horizon only.
            context: third argument of the field, as for :func:`snopt.odeint`.

        Returns:
            ``x(t1)`` in the structure of ``x``; with ``t``, the states as :func:`snopt.odeint`
            returns them.
        """
        states, packing = self._solved(x, t, context, self.adjoint)
        # Both are copies: later layers may change them in place (nn.ReLU(inplace=True)).
        return packing.unpack(states[-1].clone() if t is None else torch.stack(states))

    @uncompiled
    def then(self, function: Callable[..., Tensor], x: State, t: Sequence[float] | None = None,
             *args: Any) -> Tensor:  # fmt: skip
        """Return ``function(end, x, *args)`` for the state at the end of a solve from ``x``.

        A compiled block compiles the function with its step if the solve takes one step, as
        between the observations of a time series, unless a module among ``args`` has hooks.

        Args:
            function: a function without side effects, defined at the top level of a module; it is
                then compiled once for all calls. Pass the modules that it calls in ``args``.
            x: state at the start.
            t: start and end; None ends at the horizon.
            *args: tensors, modules, or None.

        Example:
            >>> class Decay(nn.Module):
            ...     def forward(self, t, x):
            ...         return -x
            >>> NeuralODE(Decay()).then(torch.add, torch.ones(1)).shape
            torch.Size([1])
        """
        return self._followed(function, x, [Interval(self._span(t), args)]).value

    @uncompiled
    def chain(
        self,
        function: Callable[..., Tensor],
        x: Tensor,
        args: Sequence[tuple[Any, ...]],
        *,
        t: Sequence[Sequence[float] | None] | None = None,
        beside: Sequence[tuple[Tensor, ...]] | None = None,
    ) -> Tensor:
        """Alternate solves and updates: replace ``x`` by ``then(function, x, t[k], *args[k])``.

        Wherever a run of solves takes one step each, a compiled block evaluates the run as one
        function. The values are those of single calls up to rounding.

        Args:
            function: as for :meth:`then`; it returns the next ``x``.
            x: state at the start.
            args: for each solve, the arguments of the function after both states.
            t: for each solve, start and end; None ends at the horizon.
            beside: for each solve, tensors that its state contains beside ``x``: ``(x, *beside)``.

        Example:
            >>> class Decay(nn.Module):
            ...     def forward(self, t, x):
            ...         return -x
            >>> drops = [(torch.ones(1),)] * 3
            >>> def add(end, start, drop):
            ...     return end + drop
            >>> round(NeuralODE(Decay()).chain(add, torch.zeros(1), drops).item(), 2)
            1.5
        """
        count = len(args)
        spans = [self._span(span) for span in ([None] * count if t is None else t)]
        state = [()] * count if beside is None else beside
        rest = [Interval(*each) for each in zip(spans, args, state, strict=True)]
        wait = 0  # solves of one step until the next run
        while rest:
            several = rest[:RUN] if wait == 0 and len(rest) >= RUN else rest[:1]
            found = self._followed(function, rest[0].start(x), several)
            # A field at the limit of one step would waste most runs.
            wait = RUN if found.wasted else max(0, wait - found.done)
            x, rest = found.value, rest[max(1, found.done) :]
        return x

    def _span(self, t: Sequence[float] | None) -> Sequence[float]:
        return (self.t0, self.horizon) if t is None else read_times(t)

    def _followed(self, function: Callable[..., Tensor], x: State,
                  intervals: Sequence[Interval]) -> Followed:  # fmt: skip
        """Solve the first interval and update, or several of them if the block is compiled."""
        first = intervals[0]
        calls = (self, *(arg for arg in first.args if isinstance(arg, nn.Module)))
        if not isinstance(self.adjoint, CompiledCheckpoint) or any(map(hooked, calls)):
            whole = tuple(first.times) == (self.t0, self.horizon)
            end = self(x) if whole else _last(self(x, first.times))
            return Followed(function(end, x, *first.args))
        follows = self.training and self.carry_step
        joined = Joined(self.adjoint, function, intervals, follows=follows)
        states, packing = self._solved(x, first.times, None, joined)
        if joined.value is not None:
            return Followed(joined.value, joined.done, joined.wasted)
        end = packing.unpack(states[-1].clone())
        return Followed(function(end, x, *first.args), 0, joined.wasted)

    def _solved(self, x: State, t: Tensor | Sequence[float] | None, context: Context,
                adjoint: Adjoint) -> tuple[list[Tensor], Packing]:  # fmt: skip
        """Solve, and store the step size for the next call."""
        stats = SolveStats()
        vars(self)["stats"] = stats  # a module is slow to set attributes
        watched = self.training and torch.is_grad_enabled()
        carried = self.number("carried") if self.carry_step else 0.0
        states, packing = differentiable_solve(
            self.field, x, (self.t0, self.horizon) if t is None else t,
            self._settings, adjoint, find_params(self.field, None),
            observer=self.observer if watched else None,
            stats=stats, totals=self.totals,
            first_step=carried or None, context=context,
        )  # fmt: skip
        if self.training and self.carry_step and not transforming():
            self.set_number("carried", stats.first_step or carried)
        return states, packing

    def extra_repr(self) -> str:
        """Return the settings that ``print(block)`` shows."""
        settings = self._settings
        return (
            f"t0={self.t0}, horizon={self.horizon:g}, method={settings.method!r}, "
            f"adjoint={self.adjoint.name!r}, rtol={settings.rtol}, atol={settings.atol}"
        )


def _last(path: State) -> State:
    """Return the last state of a path."""
    return path[-1] if isinstance(path, Tensor) else tuple(map(_last, path))
