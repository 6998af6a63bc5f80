r"""Nodes inside a step of the discrete adjoint, for an observer.

The discrete adjoint computes :math:`Q_x` at the ends of a step. Between them it is interpolated by
a cubic with the slopes :math:`\dot Q_x = -F_x^\top Q_x`; the state comes from dense output.
Requested times inside a step, where :math:`Q_x` jumps, divide it into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snopt.adjoint.pullback import StageListener, StepPullback, tape, vjp
from snopt.adjoint.request import Request
from snopt.base.types import time_tensor
from snopt.ode.interpolation import hermite
from snopt.ode.step import fill
from snopt.ode.tableau import Weights


@dataclass(frozen=True)
class Piece:
    """An interval on which the adjoint is smooth, with adjoint and slope at both ends.

    Attributes:
        a: start, in the direction of the solve.
        b: end; ``Q_b`` is the adjoint before any jump there.
    """

    a: float
    b: float
    Q_a: Tensor
    Q_b: Tensor
    slope_a: Tensor
    slope_b: Tensor

    def adjoint(self, t: float) -> Tensor:
        """Return the adjoint at a time inside the piece."""
        h = self.b - self.a
        return hermite((t - self.a) / h, h, self.Q_a, self.Q_b, self.slope_a, self.slope_b)


def observe_stages(request: Request, step: StepPullback) -> StageListener:
    """Return a listener that passes the stages with positive weights to the observer."""
    tableau, h = step.tableau, step.h

    def listen(i: int, x: Tensor, kappa: Tensor) -> None:
        b = tableau.b[i] if i < tableau.stages else 0.0
        if b > 0.0:
            # kappa = h b_i Q_x, where Q_x is this stage's adjoint in the discrete gradient.
            request.observe(step.t + tableau.c[i] * h, abs(h) * b, x, kappa / (h * b))

    return listen


@dataclass(frozen=True)
class Joint:
    """Values that two neighbouring steps share.

    Attributes:
        k: the field at their common end.
        slope: time derivative of the adjoint there.
        smooth: whether the adjoint is continuous there, because there is no output.
    """

    k: Tensor
    slope: Tensor
    smooth: bool


def observe_step(request: Request, step: StepPullback, Q_start: Tensor, Q_end: Tensor,
                 inside: Sequence[tuple[float, Tensor]], after: Joint | None) -> Joint:  # fmt: skip
    """Pass the nodes inside a step that has just been pulled back to the observer.

    ``after`` is the joint with the next step; the result is the joint with the previous step.
    """
    observer = request.observer
    assert observer is not None
    t0, t1 = request.times[0], request.times[-1]
    dense = _Dense(request, step, after)
    pieces = _pieces(dense, Q_start, Q_end, inside, after)
    for piece in pieces:
        for t, weight in observer.quadrature.panel(piece.a, piece.b, t0, t1):
            request.observe(t, weight, dense.state(t), piece.adjoint(t))
    return Joint(step.stages.read(0), pieces[-1].slope_a, smooth=True)


class _Dense:
    """State and slope of the adjoint anywhere in a step."""

    def __init__(self, request: Request, step: StepPullback, after: Joint | None) -> None:
        self.request, self.step = request, step
        total = len(step.tableau.c)
        end = step.end[1].detach() if step.end is not None else None
        known = end if after is None else after.k
        if known is not None and step.have == step.tableau.stages:
            step.stages.write(step.have, known)
            step.have += 1
        with torch.no_grad():
            fill(step.stages, step.rows, step.field, step.times, step.h, step.x, step.have, total)
        request.took_backward(total - step.have)
        step.have = total

    def state(self, t: float) -> Tensor:
        """Return the state at ``t``."""
        step = self.step
        weights = step.tableau.dense_weights((t - step.t) / step.h)
        return step.stages.combine(step.x, Weights.of(weights, step.x), step.h)

    def slope(self, t: float, Q_x: Tensor) -> Tensor:
        """Return ``-F_x^T Q_x`` at ``t``."""
        step = self.step
        if step.end is not None and t == step.t + step.h:
            # The forward pass evaluated the field there, and its tape was kept.
            back, _ = vjp(step.end, Q_x, ())
            step.end = None
        else:
            back, _ = vjp(tape(step.field, time_tensor(t, step.x), self.state(t)), Q_x, ())
            self.request.took_backward(1)
        return torch.zeros_like(Q_x) if back is None else -back


def _pieces(dense: _Dense, Q_start: Tensor, Q_end: Tensor,
            inside: Sequence[tuple[float, Tensor]],
            after: Joint | None) -> list[Piece]:  # fmt: skip
    """Return the pieces of a step between its outputs, the last one first.

    The adjoint at an output is computed by one Heun step from the end of the piece. At the start
    of the step it is known exactly, so errors do not accumulate over steps.
    """
    start, h = dense.step.t, dense.step.h
    pieces: list[Piece] = []
    b, Q_b = start + h, Q_end
    known = after.slope if after is not None and after.smooth else None
    for theta, jump in sorted(inside, key=lambda item: -item[0]):
        a = start + theta * h
        slope_b = dense.slope(b, Q_b) if known is None else known
        known = None
        slope_a = dense.slope(a, Q_b + (a - b) * slope_b)
        Q_a = Q_b + 0.5 * (a - b) * (slope_a + slope_b)
        pieces.append(Piece(a, b, Q_a, Q_b, slope_a, slope_b))
        b, Q_b = a, Q_a + jump
    slope_b = dense.slope(b, Q_b) if known is None else known
    slope_a = dense.slope(start, Q_start)
    pieces.append(Piece(start, b, Q_start, Q_b, slope_a, slope_b))
    return pieces
