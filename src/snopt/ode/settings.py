"""A method with its tolerances and options, read once at the edge and then only used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from snopt.base.errors import InvalidTimes, UnknownName, unknown
from snopt.base.packing import Packing
from snopt.base.types import State, TensorField, leaves
from snopt.ode.controller import OPTION_NAMES, Controller, reject_unknown
from snopt.ode.norms import norm_for
from snopt.ode.runge_kutta import RungeKutta, Stepper
from snopt.ode.solution import Solution
from snopt.ode.solve import Step, solve
from snopt.ode.step import Tolerance
from snopt.ode.tableau import TABLEAUS, Tableau

#: The asynchronous leapfrog, the method of the reversible adjoint.
LEAPFROG = "alf"
_COMMON = {"step_t", "jump_t", "norm", "first_step", "dtype"}
_FIXED = {"step_size", "grid_constructor", "perturb", "interp"}


@dataclass(frozen=True)
class Settings:
    """How to solve: method, tolerances, step-size control, stops.

    Attributes:
        method: The method's name.
        tableau: Its coefficients; None when torchdiffeq, or the leapfrog, does the solving.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        controller: Step-size control.
        first_step: First step to try, or None to guess.
        step_size: Step of fixed-step methods; None steps from one requested time to the next.
        grid_constructor: torchdiffeq's ``(func, y0, t) -> grid`` for fixed-step methods.
        stops: Times that a step must land on.
        jumps: Those of them at which the field jumps.
        norm: The user's norm of a nested state.
        options: The options as given, for a black box.
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
    norm: Callable[[State], Tensor] | None = None
    options: dict[str, Any] | None = None

    @staticmethod
    def parse(method: str, rtol: Any, atol: Any, options: dict[str, Any] | None) -> Settings:
        """Read a method's name, tolerances and options.

        Args:
            method: A native method, or any of torchdiffeq's.
            rtol: Relative tolerance: a number, a tensor, or a tuple in the state's structure.
            atol: Absolute tolerance, likewise.
            options: torchdiffeq's options of that method.

        Returns:
            The settings.

        Raises:
            UnknownName: An unknown method or option, or a value that makes no sense.

        Example:
            >>> Settings.parse("rk4", 1e-3, 1e-3, {"step_size": 0.1}).step_size
            0.1
        """
        for name, value in (("rtol", rtol), ("atol", atol)):
            if isinstance(value, (int, float)) and not 0 <= value < math.inf:
                raise UnknownName(
                    f"{name} = {value!r} is not a tolerance; use a number such as 1e-3."
                )
        if method not in TABLEAUS and method != LEAPFROG:
            from_torchdiffeq = _torchdiffeq_methods()
            if method not in from_torchdiffeq:
                raise unknown("method", method, {*TABLEAUS, LEAPFROG, *from_torchdiffeq})
            # "seminorm" is torchdiffeq's word for what always holds here: no parameter in the norm.
            rest = {
                k: v for k, v in (options or {}).items() if not (k == "norm" and v == "seminorm")
            }
            return Settings(method, None, rtol, atol, Controller(), options=rest)
        rest = dict(options or {})
        tableau = TABLEAUS.get(method)
        controller = Controller.from_options(rest)
        known = _COMMON | (_FIXED if tableau is not None and not tableau.adaptive else set())
        taken = {name: rest.pop(name) for name in known if name in rest}
        reject_unknown(rest, known | OPTION_NAMES.keys())
        jumps = _floats(taken.get("jump_t"))
        return Settings(
            method, tableau, rtol, atol, controller,
            first_step=_positive("first_step", taken.get("first_step")),
            step_size=_positive("step_size", taken.get("step_size")),
            grid_constructor=taken.get("grid_constructor"),
            stops=tuple(sorted({*_floats(taken.get("step_t")), *jumps})),
            jumps=frozenset(jumps),
            norm=None if isinstance(taken.get("norm"), str) else taken.get("norm"),
        )  # fmt: skip

    @property
    def black_box(self) -> bool:
        """Whether torchdiffeq does the solving."""
        return self.tableau is None and self.method != LEAPFROG

    @property
    def adaptive(self) -> bool:
        """Whether steps are chosen by an error estimate."""
        return self.tableau is None or self.tableau.adaptive

    @property
    def one_step(self) -> bool:
        """Whether nothing but the requested times says where fixed steps land."""
        return (
            self.tableau is not None
            and not self.tableau.adaptive
            and self.step_size is None
            and self.grid_constructor is None
            and not self.stops
        )

    def tolerance(self, packing: Packing) -> Tolerance:
        """The tolerance for a packed state.

        Args:
            packing: How the state is packed.

        Returns:
            Tolerances that broadcast with the packed state, and its norm.
        """
        norm = norm_for(packing, self.norm)
        return Tolerance(_spread(self.rtol, packing), _spread(self.atol, packing), norm)

    def stepper(self, field: TensorField, like: Tensor, packing: Packing,
                *, differentiable: bool = False) -> Stepper:  # fmt: skip
        """A Runge-Kutta stepper of this method for a field.

        Args:
            field: The field on packed states.
            like: A packed state.
            packing: How the state is packed.
            differentiable: Whether autograd shall see the steps.

        Returns:
            The stepper.
        """
        assert self.tableau is not None
        tolerance = self.tolerance(packing) if self.tableau.adaptive else None
        return RungeKutta(self.tableau, field, like, tolerance, differentiable=differentiable)

    def run(self, stepper: Stepper, x0: Tensor, times: Sequence[float], *,
            first_step: float | None = None,
            on_step: Callable[[Step], None] | None = None,
            grid: Sequence[float] | None = None) -> Solution:  # fmt: skip
        """Solve with these settings.

        Args:
            stepper: From :meth:`stepper`.
            x0: Packed state at ``times[0]``.
            times: Requested times.
            first_step: A step carried over from an earlier solve.
            on_step: Told of every accepted step.
            grid: Steps of a fixed-step method, from :meth:`grid`.

        Returns:
            The solution.
        """
        return solve(
            stepper, x0, times,
            controller=self.controller,
            first_step=self.first_step if self.first_step is not None else first_step,
            stops=grid if grid is not None else self.landing(times),
            jumps=self.jumps,
            on_step=on_step,
        )  # fmt: skip

    def landing(self, times: Sequence[float]) -> list[float]:
        """Where steps must land, the last requested time included.

        Args:
            times: Requested times.

        Returns:
            Stops in the direction of the solve.

        Example:
            >>> Settings.parse("rk4", 0, 0, {"step_size": 0.4}).landing([0.0, 1.0])
            [0.4, 0.8, 1.0]
        """
        t0, t1 = times[0], times[-1]
        sign = 1.0 if t1 > t0 else -1.0
        inside = [s for s in self.stops if (s - t0) * sign > 0.0 and (t1 - s) * sign > 0.0]
        if not self.adaptive:
            if self.step_size is None:
                inside += times[1:-1]
            else:
                count = math.ceil(abs(t1 - t0) / self.step_size - 1e-9)
                inside += [t0 + sign * i * self.step_size for i in range(1, count)]
        return [*sorted(set(inside), reverse=sign < 0.0), t1]

    def replaced(self, **changes: Any) -> Settings:
        """A copy with some attributes changed.

        Args:
            **changes: Attributes and their new values.

        Returns:
            The copy.
        """
        return replace(self, **changes)


def check_times(times: Sequence[float]) -> None:
    """Check that requested times can be walked through.

    Args:
        times: The times.

    Raises:
        InvalidTimes: Fewer than two, not finite, repeated, or not monotone.

    Example:
        >>> check_times([0.0, 1.0, 0.5])
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidTimes: times must be strictly monotone, but t[1] = 1.0 is ...
    """
    if len(times) < 2:
        raise InvalidTimes(f"need a start and at least one later time, got {list(times)}.")
    sign = 1.0 if times[-1] > times[0] else -1.0
    for i, (a, b) in enumerate(pairwise(times)):
        if not (math.isfinite(a) and math.isfinite(b)):
            raise InvalidTimes(f"t[{i}] = {a}, t[{i + 1}] = {b}: times must be finite.")
        if not (b - a) * sign > 0.0:
            raise InvalidTimes(
                f"times must be strictly monotone, but t[{i}] = {a} is followed by "
                f"t[{i + 1}] = {b}; sort them and drop repeated ones (`torch.unique`)."
            )


def _torchdiffeq_methods() -> set[str]:
    """The names torchdiffeq knows, asked only when ours do not have the one wanted."""
    from torchdiffeq._impl.odeint import SOLVERS

    return set(SOLVERS)


def _floats(times: Any) -> tuple[float, ...]:
    """Times given as a tensor, a list, or not at all."""
    if times is None:
        return ()
    return tuple(float(t) for t in (times.tolist() if isinstance(times, Tensor) else times))


def _positive(name: str, value: Any) -> float | None:
    """An optional positive number."""
    if value is None:
        return None
    number = float(value)
    if not 0.0 < number < math.inf:
        raise UnknownName(f"option {name} = {value!r} must be a positive number.")
    return number


def _spread(tol: Any, packing: Packing) -> float | Tensor:
    """A tolerance as a number or as a tensor that broadcasts with the packed state."""
    if isinstance(tol, (int, float)):
        return float(tol)
    if isinstance(tol, Tensor):
        return float(tol) if tol.numel() == 1 else tol
    flat = list(leaves(tuple(torch.as_tensor(part) for part in tol)))
    if len(flat) != len(packing.sizes):
        raise UnknownName(
            f"got {len(flat)} tolerances for a state of {len(packing.sizes)} parts; "
            "give one a part."
        )
    return torch.cat([part.expand(size) for part, size in zip(flat, packing.sizes, strict=True)])
