"""A method with its tolerances and options, validated once per solve or block."""

from __future__ import annotations

import heapq
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from snopt.base.errors import InvalidOption, InvalidTimes
from snopt.base.packing import Packing
from snopt.base.types import Field, State, TensorField, leaves, real_dtype
from snopt.ode.callbacks import Callbacks
from snopt.ode.controller import UNBOUNDED, Controller
from snopt.ode.interpolation import cubic, linear
from snopt.ode.norms import norm_for
from snopt.ode.options import LEAPFROG, as_times, check_names, check_tolerance, choice, positive
from snopt.ode.runge_kutta import RungeKutta, Stepper
from snopt.ode.solution import Solution
from snopt.ode.solve import Step, solve
from snopt.ode.step import Tolerance
from snopt.ode.tableau import TABLEAUS, Tableau
from snopt.ode.times import check_times

__all__ = ["LEAPFROG", "Settings", "check_times"]


#: Default ``max_num_steps`` of torchdiffeq's and SciPy's methods, whose steps take longer.
BLACK_BOX_STEPS = 4_000


@dataclass(frozen=True)
class Settings:
    """How to solve: method, tolerances, step-size control, stops.

    Attributes:
        tableau: coefficients of the method; None for the leapfrog and for torchdiffeq's methods.
        first_step: first step to try; None guesses one.
        step_size: step of fixed-step methods; None takes one step per requested time.
        grid_constructor: torchdiffeq's ``(func, y0, t) -> grid`` for fixed-step methods.
        stops: times at which a step must end.
        jumps: stops at which the field is discontinuous.
        perturb: whether a fixed-step method evaluates the field just inside the ends of each step.
        norm: the user's norm of a nested state.
        adjoint_norm: the user's norm of the adjoint state in torchdiffeq's layout.
        options: the options as the user passed them.
        callbacks: callbacks of the user's field.
    """

    method: str
    tableau: Tableau | None
    rtol: Any
    atol: Any
    controller: Controller
    first_step: float | None = None
    step_size: float | None = None
    grid_constructor: Callable[..., Tensor] | None = None
    stops: tuple[float, ...] = ()
    jumps: frozenset[float] = frozenset()
    perturb: bool = False
    norm: Callable[[State], Tensor] | None = None
    adjoint_norm: Callable[[tuple[Tensor, ...]], Tensor] | None = None
    options: dict[str, Any] | None = None
    callbacks: Callbacks | None = None

    @staticmethod
    def parse(method: str, rtol: Any, atol: Any, options: dict[str, Any] | None) -> Settings:
        """Validate a method's name, tolerances and options.

        Raises:
            UnknownName: unknown method or option.
            InvalidOption: invalid value, or options that exclude each other.

        Example:
            >>> Settings.parse("rk4", 1e-3, 1e-3, {"step_size": 0.1}).step_size
            0.1
        """
        check_tolerance("rtol", rtol)
        check_tolerance("atol", atol)
        if method in TABLEAUS and TABLEAUS[method].adaptive and _zero(rtol) and _zero(atol):
            raise InvalidOption(
                "rtol = 0 and atol = 0: no step has an error of zero; make one of them positive."
            )
        own, given = dict(options or {}), dict(options or {})
        check_names(method, own)
        norm = own.pop("norm", None)
        if norm is not None and not callable(norm):
            raise InvalidOption(
                f"option norm = {norm!r} must be a function of the state; snopt.Seminorm is one "
                "that ignores parts of a tuple."
            )
        if method not in TABLEAUS and method != LEAPFROG:
            bound = {"max_num_steps": own.get("max_num_steps", BLACK_BOX_STEPS)}
            controller = Controller.from_options(bound)
            return Settings(method, None, rtol, atol, controller, norm=norm, options=given)
        jumps = as_times("jump_t", own.get("jump_t"))
        settings = Settings(
            method, TABLEAUS.get(method), rtol, atol, Controller.from_options(own),
            first_step=positive("first_step", own.get("first_step")),
            stops=tuple(sorted({*as_times("step_t", own.get("step_t")), *jumps})),
            jumps=frozenset(jumps),
            norm=norm,
            options=given,
        )  # fmt: skip
        if settings.adaptive:
            choice("dtype", own.get("dtype", torch.float64), (torch.float64,),
                   "times and step sizes always have double precision")  # fmt: skip
            return settings
        return settings._on_grid(own, bounded="max_num_steps" in given)

    def _on_grid(self, options: dict[str, Any], *, bounded: bool) -> Settings:
        """Return the settings with the options of a fixed-step method."""
        constructor = options.get("grid_constructor")
        given = [
            name for name in ("step_size", "step_t", "jump_t") if options.get(name) is not None
        ]
        if constructor is not None and given:
            raise InvalidOption(
                f"options grid_constructor and {given[0]} exclude each other: steps end at the "
                "points of the constructed grid; add those times to it."
            )
        if constructor is not None and not callable(constructor):
            raise InvalidOption(
                f"option grid_constructor = {constructor!r} must be a function of "
                "(func, y0, t) that returns a grid of times."
            )
        interp = choice("interp", options.get("interp", "linear"), ("linear", "cubic"),
                        "there is no other interpolation")  # fmt: skip
        between = linear if interp == "linear" else cubic
        assert self.tableau is not None
        control = self.controller
        return self.replaced(
            tableau=replace(self.tableau, outputs=between(self.tableau.b)),
            controller=control if bounded else replace(control, max_steps=UNBOUNDED),
            step_size=positive("step_size", options.get("step_size")),
            grid_constructor=constructor,
            perturb=choice("perturb", options.get("perturb", False), (False, True), "a switch"),
        )

    @property
    def black_box(self) -> bool:
        """Whether torchdiffeq implements the method."""
        return self.tableau is None and self.method != LEAPFROG

    @property
    def adaptive(self) -> bool:
        """Whether steps are chosen by an error estimate."""
        return self.tableau is None or self.tableau.adaptive

    @property
    def _free(self) -> bool:
        """Whether only the last requested time is the end of a step."""
        return self.adaptive and not self.stops

    @property
    def one_step(self) -> bool:
        """Whether fixed steps end at the requested times only."""
        return not (self.adaptive or self.step_size or self.grid_constructor or self.stops)

    def tolerance(self, packing: Packing) -> Tolerance:
        """Return the tolerance for packed states."""
        rtol, atol = _spread(self.rtol, packing), _spread(self.atol, packing)
        return Tolerance(rtol, atol, norm_for(packing, self.norm))

    def stepper(self, field: TensorField, like: Tensor, packing: Packing,
                *, differentiable: bool = False) -> Stepper:  # fmt: skip
        """Return a Runge-Kutta stepper for a field on packed states such as ``like``."""
        assert self.tableau is not None
        tolerance = self.tolerance(packing) if self.tableau.adaptive else None
        return RungeKutta(self.tableau, field, like, tolerance, differentiable=differentiable)

    def run(self, stepper: Stepper, x0: Tensor, times: Sequence[float], *,
            first_step: float | None = None,
            on_step: Callable[[Step], None] | None = None,
            grid: Iterable[float] | None = None,
            until: Callable[[Step], bool] | None = None) -> Solution:  # fmt: skip
        """Solve with these settings; ``first_step`` is the step size of an earlier solve.

        ``grid`` overrides the times at which steps end; see :func:`snopt.ode.solve.solve` for the
        rest.
        """
        return solve(
            stepper, x0, times,
            controller=self.controller,
            first_step=self.first_step if self.first_step is not None else first_step,
            stops=grid if grid is not None or self._free else self.landing(times),
            jumps=self.jumps,
            perturb=self.perturb,
            on_step=on_step,
            until=until,
            callbacks=self.callbacks,
        )  # fmt: skip

    def landing(self, times: Sequence[float]) -> Iterator[float]:
        """Yield the times at which steps must end, including the last requested time.

        Example:
            >>> list(Settings.parse("rk4", 0, 0, {"step_size": 0.4}).landing([0.0, 1.0]))
            [0.4, 0.8, 1.0]
        """
        t0, t1 = times[0], times[-1]
        sign = 1.0 if t1 > t0 else -1.0
        inside = [s for s in self.stops if (s - t0) * sign > 0.0 and (t1 - s) * sign > 0.0]
        steps = () if self.adaptive else self._steps(times)
        last = t0
        for stop in heapq.merge(inside[:: int(sign)], steps, reverse=sign < 0.0):
            if stop != last:
                yield stop
            last = stop
        yield t1

    def _steps(self, times: Sequence[float]) -> Iterable[float]:
        """Return where the steps of a fixed-step method end, except the last one."""
        t0, t1, size = times[0], times[-1], self.step_size
        if size is None:
            return times[1:-1]
        if t0 + size == t0 or (math.isfinite(t1) and t1 + size == t1):
            raise InvalidOption(
                f"option step_size = {size} is too small to be resolved at the times {t0} and "
                f"{t1}; use a longer step."
            )
        signed = math.copysign(size, t1 - t0)
        if math.isinf(t1):
            return (t0 + i * signed for i in itertools.count(1))
        return (t0 + i * signed for i in range(1, self.fixed_steps(times)))

    def fixed_steps(self, times: Sequence[float]) -> int:
        """Return the number of steps of ``step_size`` in a solve; 0 without that option."""
        size = self.step_size
        return 0 if size is None else math.ceil(abs(times[-1] - times[0]) / size - 1e-9)

    def constructed_grid(self, func: Field, y0: State, times: Sequence[float],
                         like: Tensor) -> list[float] | None:  # fmt: skip
        """Return where steps end according to the user's ``grid_constructor``, if there is one.

        Raises:
            InvalidTimes: the grid does not go from the first to the last requested time.
        """
        if self.grid_constructor is None:
            return None
        t = torch.tensor(list(times), dtype=real_dtype(like.dtype), device=like.device)
        grid = torch.as_tensor(self.grid_constructor(func, y0, t)).tolist()
        check_times(grid)
        if abs(grid[0] - times[0]) > 1e-6 or abs(grid[-1] - times[-1]) > 1e-6:
            raise InvalidTimes(
                f"grid_constructor returned a grid from {grid[0]} to {grid[-1]}, but the solve "
                f"goes from {times[0]} to {times[-1]}."
            )
        return [*grid[1:-1], times[-1]]

    def calling(self, callbacks: Callbacks | None) -> Settings:
        """Return these settings with the callbacks of a field."""
        idle = sorted(callbacks.functions.keys() - {"callback_step"}) if callbacks else []
        if idle and not self.adaptive:
            warnings.warn(
                f"method {self.method!r} takes fixed steps and rejects none; "
                f"{' and '.join(idle)} of the field will not be called.",
                stacklevel=2,
            )
        return self if callbacks is self.callbacks else self.replaced(callbacks=callbacks)

    def replaced(self, **changes: Any) -> Settings:
        """Return a copy with some attributes changed."""
        return replace(self, **changes)


def _zero(tol: Any) -> bool:
    return isinstance(tol, Real) and tol == 0


def _spread(tol: Any, packing: Packing) -> float | Tensor:
    """Return a tolerance as a number, or as a tensor that broadcasts with the packed state."""
    if isinstance(tol, Real):
        return float(tol)
    if isinstance(tol, Tensor) and tol.numel() == 1:
        return float(tol)
    if isinstance(tol, Tensor) and packing.single:
        return _fitting(tol, packing.layout)
    flat = list(leaves(tuple(torch.as_tensor(part) for part in tol)))
    if len(flat) != len(packing.sizes):
        raise InvalidOption(
            f"got {len(flat)} tolerances for a state of {len(packing.sizes)} tensors; "
            "pass one per tensor, or a single one."
        )
    if packing.single:
        return _spread(flat[0], packing)
    parts = zip(flat, packing.sizes, strict=True)
    return torch.cat([_fitting(part, torch.Size([n])).expand(n) for part, n in parts])


def _fitting(tol: Tensor, shape: torch.Size) -> Tensor:
    """Return a tolerance that broadcasts to a shape, or raise InvalidOption."""
    pairs = zip(reversed(tol.shape), reversed(shape), strict=False)
    if tol.dim() > len(shape) or any(n not in (1, size) for n, size in pairs):
        raise InvalidOption(
            f"a tolerance of shape {tuple(tol.shape)} does not broadcast to {tuple(shape)}, the "
            "shape of the state (each tensor of a tuple flattened to a vector); pass a number, or "
            "a tensor of that shape."
        )
    return tol
