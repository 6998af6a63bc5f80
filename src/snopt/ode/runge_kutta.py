"""Runge-Kutta as a stepper: what the time loop asks of a method, answered by a tableau."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from snopt.base.types import TensorField
from snopt.ode.step import (
    StageBuffer,
    StageList,
    Stages,
    Tolerance,
    combine_errors,
    fill,
    stage_times,
)
from snopt.ode.tableau import Tableau, tensors


class Stepper(Protocol):
    """What the time loop knows of a method.

    Attributes:
        adaptive: Whether attempts come with an error ratio.
        error_order: Order of the error estimate plus one.
        nfe: Field evaluations so far.
    """

    adaptive: bool
    error_order: int
    nfe: int

    def start(self, t: float, x: Tensor) -> None:
        """Begin at ``(t, x)``, forgetting every slope."""

    def guess(self, span: float) -> float:
        """A first step for an interval of length ``span`` (its sign is the direction)."""

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try a step; returns the new state and the error ratio (NaN if not adaptive)."""

    def interpolate(self, theta: float) -> Tensor:
        """A requested output inside the step tried last."""

    def accept(self) -> None:
        """The step tried last becomes the past."""


class RungeKutta:
    """A stepper for one tableau and one field.

    Attributes:
        tableau: The method.
        adaptive: Whether the method estimates its error and a tolerance is given.
        error_order: Order of the error estimate plus one.
        nfe: Field evaluations so far.
        stages: The stages of the step tried last.
    """

    def __init__(self, tableau: Tableau, field: TensorField, like: Tensor,
                 tolerance: Tolerance | None, *, differentiable: bool = False) -> None:  # fmt: skip
        """Bind a method to a field.

        Args:
            tableau: The method.
            field: The field on packed states.
            like: A state, for shape, dtype and device.
            tolerance: Error allowed a step; None switches the estimate off.
            differentiable: Whether autograd shall see the steps.
        """
        self.tableau, self.field, self.tolerance = tableau, field, tolerance
        self.rows = tensors(tableau, like.dtype, like.device)
        self.adaptive = tableau.adaptive and tolerance is not None
        self.error_order = 8 if len(tableau.errors) == 2 else tableau.order
        self.nfe = 0
        self.differentiable = differentiable
        # The buffer is made when the first slope is: steppers that bring their own need none.
        self.stages: Stages = StageList()
        self._have = 0  # stages of the current step that are known
        self._step: tuple[float, float, Tensor, Tensor] | None = None

    def start(self, t: float, x: Tensor) -> None:
        """Begin at ``(t, x)``, forgetting every slope.

        Args:
            t: The time.
            x: The state.
        """
        self._have = 0
        self._step = (t, 0.0, x, x)

    def guess(self, span: float) -> float:
        r"""A first step from the sizes of the state, its slope and its curvature.

        With :math:`d_0, d_1, d_2` the scaled norms of :math:`x, \dot x, \ddot x`:
        :math:`h_0 = 0.01\, d_0 / d_1`, one Euler step of it gives :math:`d_2`, and
        :math:`h = \min(100 h_0, (0.01 / \max(d_1, d_2))^{1/q})` (Hairer, Norsett, Wanner,
        Section II.4).

        Args:
            span: Signed length of the interval.

        Returns:
            The size of the first step, positive.
        """
        assert self._step is not None and self.tolerance is not None
        t, _, x, _ = self._step
        self._first_slope(t, x)
        with torch.no_grad():
            k1, norm, scale = self.stages.read(0), self.tolerance.norm, self.tolerance.scale(x, x)
            d0, d1 = float(norm(x / scale)), float(norm(k1 / scale))
            h0 = 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1
            h0 = min(h0, abs(span))
            if not math.isfinite(h0) or h0 == 0.0:
                return abs(span)
            signed = math.copysign(h0, span)
            k2 = self._evaluate(
                stage_times(self.rows, t, signed)[-1], torch.add(x, k1, alpha=signed)
            )
            d2 = float(norm((k2 - k1) / scale)) / h0
        top = max(d1, d2)
        h1 = max(1e-6, h0 * 1e-3) if top <= 1e-15 else (0.01 / top) ** (1.0 / self.error_order)
        return h0 if not math.isfinite(h1) else min(100.0 * h0, h1, abs(span))

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try one step.

        Args:
            t: Start of the step.
            h: The step, signed.
            x: State at ``t``.

        Returns:
            The state at ``t + h`` and the error ratio (NaN if not adaptive).
        """
        tableau, rows = self.tableau, self.rows
        self._first_slope(t, x)
        if self.differentiable:
            # A fresh list: the graph holds on to the stages of the earlier steps.
            first = self.stages.read(0)
            self.stages = StageList()
            self.stages.write(0, first)
        stages = self.stages
        times = stage_times(rows, t, h)
        fill(stages, tableau, self.field, times, h, x, 1, tableau.stages)
        x1 = stages.combine(x, rows.a[tableau.stages], h)
        self._have = tableau.stages
        if tableau.fsal:
            stages.write(self._have, self.field(times[self._have], x1))
            self._have += 1
        self.nfe += self._have - 1
        self._step = (t, h, x, x1)
        return x1, self._error_ratio(x, x1, h)

    def interpolate(self, theta: float) -> Tensor:
        """A requested output inside the step tried last.

        Args:
            theta: Position in the step, from 0 to 1.

        Returns:
            The state there.
        """
        assert self._step is not None
        t, h, x, _ = self._step
        row = self.tableau.output_weights(theta)
        total = len(row)
        if self._have < total:
            times = stage_times(self.rows, t, h)
            fill(self.stages, self.tableau, self.field, times, h, x, self._have, total)
            self.nfe += total - self._have
            self._have = total
        weights = torch.tensor(row, dtype=x.dtype, device=x.device)
        return self.stages.combine(x, weights, h)

    def accept(self) -> None:
        """Make the end slope, if known, the first slope of the next step."""
        end = self.tableau.stages
        if self._have > end:
            slope = self.stages.read(end)
            if self.differentiable:
                self.stages = StageList()
            self.stages.write(0, slope)
            self._have = 1
        else:
            self._have = 0

    def _first_slope(self, t: float, x: Tensor) -> None:
        """Make sure that the first stage is known."""
        if self._have == 0:
            if self.differentiable:
                self.stages = StageList()
            elif not isinstance(self.stages, StageBuffer):
                self.stages = StageBuffer(len(self.tableau.c), x)
            time = torch.tensor(t, dtype=self.rows.c.dtype, device=x.device)
            self.stages.write(0, self._evaluate(time, x))
            self._have = 1

    def _evaluate(self, t: Tensor, x: Tensor) -> Tensor:
        self.nfe += 1
        return self.field(t, x)

    def _error_ratio(self, x: Tensor, x1: Tensor, h: float) -> float:
        """Norm of the scaled error estimate of the step just tried."""
        if not self.adaptive or self.tolerance is None:
            return math.nan
        with torch.no_grad():
            scale = self.tolerance.scale(x.detach(), x1.detach())
            norms = [
                float(self.tolerance.norm(self.stages.combine(None, row, h).detach().div_(scale)))
                for row in self.rows.errors
            ]
        return combine_errors(norms)
