"""Explicit Runge-Kutta methods as steppers of the time loop."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from snopt.base.types import TensorField, time_tensor
from snopt.ode import step
from snopt.ode.step import StageBuffer, StageList, Stages, Tolerance
from snopt.ode.tableau import Tableau, Weights, tensors


class Stepper(Protocol):
    """The interface between a method and the time loop.

    Attributes:
        adaptive: whether attempts return an error ratio.
        error_order: order of the error estimate plus one.
        nfe: number of field evaluations so far.
    """

    adaptive: bool
    error_order: int
    nfe: int

    def start(self, t: float, x: Tensor) -> None:
        """Start at ``(t, x)`` and forget all slopes."""

    def guess(self, span: float) -> float:
        """Return a first step size for an interval of signed length ``span``."""

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try the signed step ``h``; return the new state and the error ratio (or NaN)."""

    def interpolate(self, theta: float) -> Tensor:
        """Return the state at ``t + theta * h`` of the last attempt."""

    def accept(self) -> None:
        """Accept the last attempt."""


def first_guess(d0: float, d1: float, span: float) -> float:
    """Return the size of a trial Euler step from the norms of the state and its slope."""
    return min(1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1, span)


def second_guess(h0: float, d1: float, d2: float, order: int, span: float) -> float:
    """Return a first step size from the trial step and the norms of slope and curvature."""
    top = max(d1, d2)
    h1 = max(1e-6, h0 * 1e-3) if top <= 1e-15 else (0.01 / top) ** (1.0 / order)
    return h0 if not math.isfinite(h1) else min(100.0 * h0, h1, span)


class RungeKutta:
    """A stepper for one tableau and one field.

    Without a ``tolerance`` it estimates no errors. With ``differentiable``, autograd records the
    steps.
    """

    def __init__(self, tableau: Tableau, field: TensorField, like: Tensor,
                 tolerance: Tolerance | None, *, differentiable: bool = False) -> None:  # fmt: skip
        self.tableau, self.field, self.tolerance = tableau, field, tolerance
        self.rows = tensors(tableau, like.dtype, like.device)
        self.adaptive = tableau.adaptive and tolerance is not None
        self.error_order = tableau.error_order
        self.nfe = 0
        self.differentiable = differentiable
        # The buffer is allocated with the first slope: subclasses may not need it.
        self.stages: Stages = StageList()
        self._have = 0  # number of known stages of the current step
        self._step: tuple[float, float, Tensor, Tensor] | None = None

    def start(self, t: float, x: Tensor) -> None:
        """Start at ``(t, x)`` and forget all slopes."""
        self._have = 0
        self._step = (t, 0.0, x, x)

    def guess(self, span: float) -> float:
        r"""Return a first step from the norms of the state, its slope and its curvature.

        With :math:`d_0, d_1, d_2` the scaled norms of :math:`x, \dot x, \ddot x`:
        :math:`h_0 = 0.01\, d_0 / d_1`, one Euler step of this size estimates :math:`d_2`, and
        :math:`h = \min(100 h_0, (0.01 / \max(d_1, d_2))^{1/q})` (Hairer, Norsett, Wanner,
        Section II.4).
        """
        assert self._step is not None and self.tolerance is not None
        t, _, x, _ = self._step
        self._first_slope(t, x)
        with torch.no_grad():
            k1, norm, scale = self.stages.read(0), self.tolerance.norm, self.tolerance.scale(x, x)
            d0, d1 = step.read_numbers(norm(x / scale), norm(k1 / scale))
            h0 = first_guess(d0, d1, abs(span))
            if not math.isfinite(h0) or h0 == 0.0:
                return abs(span)
            signed = math.copysign(h0, span)
            time = step.stage_times(self.rows, t, signed)[self.tableau.stages]
            k2 = self._evaluate(time, torch.add(x, k1, alpha=signed))
            d2 = float(norm((k2 - k1) / scale)) / h0
        return second_guess(h0, d1, d2, self.error_order, abs(span))

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try the signed step ``h``; return the new state and the error ratio (or NaN)."""
        tableau, rows = self.tableau, self.rows
        self._first_slope(t, x)
        if self.differentiable:
            # A new list, because the graph of earlier steps holds their stages.
            self.stages = StageList(self.stages.read(0))
        times = step.stage_times(rows, t, h)
        step.fill(self.stages, rows, self.field, times, h, x, 1, tableau.stages)
        x1 = self.stages.combine(x, rows.a[tableau.stages], h)
        self._have = tableau.stages
        if tableau.fsal:
            self.stages.write(self._have, self.field(times[self._have], x1))
            self._have += 1
        self.nfe += self._have - 1
        self._step = (t, h, x, x1)
        return x1, self._error_ratio(x, x1, h)

    def interpolate(self, theta: float) -> Tensor:
        """Return the state at ``t + theta * h`` of the last attempt."""
        assert self._step is not None
        t, h, x, _ = self._step
        row = self.tableau.output_weights(theta)
        total = len(row)
        if self._have < total:
            times = step.stage_times(self.rows, t, h)
            step.fill(self.stages, self.rows, self.field, times, h, x, self._have, total)
            self.nfe += total - self._have
            self._have = total
        return self.stages.combine(x, Weights.of(row, x), h)

    def accept(self) -> None:
        """Use the end slope, if it is known, as the first slope of the next step."""
        end = self.tableau.stages
        if self._have > end:
            slope = self.stages.read(end)
            if self.differentiable:
                self.stages = StageList()
            self.stages.write(0, slope)
        self._have = int(self._have > end)

    def _first_slope(self, t: float, x: Tensor) -> None:
        if self._have == 0:
            if self.differentiable:
                self.stages = StageList()
            elif not isinstance(self.stages, StageBuffer):
                self.stages = StageBuffer(len(self.tableau.c), x)
            self.stages.write(0, self._evaluate(time_tensor(t, x), x))
            self._have = 1

    def _evaluate(self, t: Tensor, x: Tensor) -> Tensor:
        self.nfe += 1
        return self.field(t, x)

    def _error_ratio(self, x: Tensor, x1: Tensor, h: float) -> float:
        """Return the norm of the scaled error estimate of the last attempt."""
        if not self.adaptive or self.tolerance is None:
            return math.nan
        with torch.no_grad():
            scale = self.tolerance.scale(x, x1)
            norms = [
                self.tolerance.norm(self.stages.combine(None, row, h).div_(scale))
                for row in self.rows.errors
            ]
            return step.combine_errors(step.read_numbers(*norms))
