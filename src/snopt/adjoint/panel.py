r"""Telling an observer what happened inside a step of the discrete adjoint.

The discrete adjoint knows :math:`Q_x` at the ends of a step. Between them it is a cubic
Hermite polynomial with the slopes :math:`\dot Q_x = -F_x^\top Q_x`; the state comes from dense
output. Requested times inside a step, where :math:`Q_x` jumps, cut it into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snopt.adjoint.pullback import StageListener, StepPullback, tape, vjp
from snopt.adjoint.request import Request
from snopt.ode.step import fill


@dataclass(frozen=True)
class Piece:
    """A stretch of time on which the adjoint is smooth.

    Attributes:
        a: Its start, in the direction of the solve.
        b: Its end.
        Q_a: Adjoint at the start.
        Q_b: Adjoint at the end, before any jump there.
        slope_a: Time derivative of the adjoint at the start.
        slope_b: The same at the end.
    """

    a: float
    b: float
    Q_a: Tensor
    Q_b: Tensor
    slope_a: Tensor
    slope_b: Tensor

    def adjoint(self, t: float) -> Tensor:
        """The adjoint inside the piece.

        Args:
            t: A time in the piece.

        Returns:
            The cubic Hermite polynomial there.

        Example:
            >>> one, zero = torch.ones(1), torch.zeros(1)
            >>> Piece(0.0, 1.0, zero, one, one, one).adjoint(0.25)
            tensor([0.2500])
        """
        h = self.b - self.a
        s = (t - self.a) / h
        return (
            (1 + 2 * s) * (1 - s) ** 2 * self.Q_a
            + s * s * (3 - 2 * s) * self.Q_b
            + h * s * (1 - s) ** 2 * self.slope_a
            + h * s * s * (s - 1) * self.slope_b
        )


def observe_stages(request: Request, step: StepPullback) -> StageListener:
    """Tell the stages themselves: for fixed-step methods with positive weights.

    Args:
        request: The solve, with its observer.
        step: The step about to be pulled back.

    Returns:
        The listener for the pull-back.
    """
    observer = request.observer
    assert observer is not None
    tableau, h = step.tableau, step.h

    def listen(i: int, x: Tensor, kappa: Tensor) -> None:
        b = tableau.b[i] if i < tableau.stages else 0.0
        if b > 0.0:
            # kappa = h b_i Q_x: the adjoint that belongs to this stage in the discrete gradient.
            request.tell(observer, step.t + tableau.c[i] * h, abs(h) * b, x, kappa / (h * b))

    return listen


@dataclass(frozen=True)
class Joint:
    """What two neighbouring steps share, so that it is evaluated once.

    Attributes:
        k: The field at the joint.
        slope: Time derivative of the adjoint there.
        smooth: Whether the adjoint is continuous at the joint (no output there).
    """

    k: Tensor
    slope: Tensor
    smooth: bool


def observe_step(request: Request, step: StepPullback, Q_start: Tensor, Q_end: Tensor,
                 inside: Sequence[tuple[float, Tensor]], after: Joint | None) -> Joint:  # fmt: skip
    """Tell quadrature nodes inside a step that has just been pulled back.

    Args:
        request: The solve, with its observer.
        step: The step; its stages are known.
        Q_start: Adjoint at the start.
        Q_end: Adjoint at the end.
        inside: ``(theta, cotangent)`` of outputs strictly inside.
        after: The joint with the step after this one.

    Returns:
        The joint with the step before this one.
    """
    observer = request.observer
    assert observer is not None
    t0, t1 = request.times[0], request.times[-1]
    dense = _Dense(request, step, after)
    pieces = _pieces(dense, Q_start, Q_end, inside, after)
    for piece in pieces:
        for t, weight in observer.quadrature.panel(piece.a, piece.b, t0, t1):
            request.tell(observer, t, weight, dense.state(t), piece.adjoint(t))
    return Joint(step.stages.read(0), pieces[-1].slope_a, smooth=True)


class _Dense:
    """State and adjoint slope anywhere in a step."""

    def __init__(self, request: Request, step: StepPullback, after: Joint | None) -> None:
        self.request, self.step = request, step
        total = len(step.tableau.c)
        if after is not None and step.have == step.tableau.stages:
            step.stages.write(step.have, after.k)
            step.have += 1
        elif after is None and step.end is not None and step.have == step.tableau.stages:
            step.stages.write(step.have, step.end[1].detach())
            step.have += 1
        with torch.no_grad():
            fill(
                step.stages, step.tableau, step.field, step.times, step.h, step.x, step.have, total
            )
        request.took_backward(total - step.have)
        step.have = total

    def state(self, t: float) -> Tensor:
        """Dense output at ``t``."""
        step = self.step
        weights = step.tableau.dense_weights((t - step.t) / step.h)
        return step.stages.combine(step.x, step.x.new_tensor(weights), step.h)

    def slope(self, t: float, Q_x: Tensor) -> Tensor:
        """``-F_x^T Q_x`` at ``t``."""
        step = self.step
        if step.end is not None and t == step.t + step.h:
            # The forward pass evaluated the field there, and its tape was kept.
            back, _ = vjp(step.end, Q_x, ())
            step.end = None
        else:
            back, _ = vjp(tape(step.field, step.rows.c.new_tensor(t), self.state(t)), Q_x, ())
            self.request.took_backward(1)
        return torch.zeros_like(Q_x) if back is None else -back


def _pieces(dense: _Dense, Q_start: Tensor, Q_end: Tensor,
            inside: Sequence[tuple[float, Tensor]],
            after: Joint | None) -> list[Piece]:  # fmt: skip
    """Cut a step at its inner outputs, last piece first.

    The adjoint at a cut is found by one Heun step from the piece's end; the start of the
    step is known exactly, so that errors do not pass on from step to step.
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
