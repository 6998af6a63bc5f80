"""The checkpointed discrete adjoint: the default.

Forward, the state at the start of every accepted step is kept and nothing else, except that
the last ``keep`` steps keep their tape (see :mod:`snopt.adjoint.tape_budget`). Backward, one
step at a time is run again, unless its tape was kept, and pulled back through its stages. The
gradient is exact for the discretised solution, the backward pass has no error control and
rejects nothing, and memory is one state a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.panel import Joint, observe_stages, observe_step
from snopt.adjoint.pullback import GradientSum, StepPullback, TapedStage, tape
from snopt.adjoint.request import Request
from snopt.base.errors import GradientError
from snopt.base.types import TensorField
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.solve import Step

#: Outputs ``(index, theta)`` of a step.
Outputs = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class StepMark:
    """What is remembered of an accepted step, apart from its state.

    Attributes:
        t: Start.
        h: Signed step.
        outputs: Requested times that the step serves.
    """

    t: float
    h: float
    outputs: Outputs


class Tape:
    """A field that, when armed, keeps autograd's tape of each evaluation.

    Attributes:
        armed: Whether evaluations are kept.
        stages: The evaluations of the current step; None for those that were not kept.
    """

    def __init__(self, field: TensorField, armed: bool) -> None:
        """Wrap a field.

        Args:
            field: The field on packed states.
            armed: Whether to begin by keeping.
        """
        self._field, self.armed = field, armed
        self.stages: list[TapedStage | None] = []

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field.

        Args:
            t: Time.
            x: State.

        Returns:
            Its value, off the tape.
        """
        if not self.armed:
            self.stages.append(None)
            return self._field(t, x)
        stage = tape(self._field, t, x)
        self.stages.append(stage)
        return stage[1].detach()


class TapingRungeKutta(RungeKutta):
    """Runge-Kutta that keeps the tape of the last steps.

    A step whose tape is kept is not run again in the backward pass. Which steps are the last
    is known beforehand: those from which the end is at most ``keep`` steps away.
    """

    def __init__(self, request: Request, x0: Tensor) -> None:
        """Bind to a request.

        Args:
            request: The solve.
            x0: Packed initial state.
        """
        settings = request.settings
        assert settings.tableau is not None
        tolerance = settings.tolerance(request.packing) if settings.adaptive else None
        # A bound method as field would tie the stepper, and all it holds, into a cycle.
        self._tape = Tape(request.field, armed=request.keep > 0)
        super().__init__(settings.tableau, self._tape, x0, tolerance)
        self._end, self._keep = request.times[-1], request.keep
        self.kept: deque[list[TapedStage | None]] = deque(maxlen=request.keep)

    def guess(self, span: float) -> float:
        """A first step; the slope that it needed stays on the tape.

        Args:
            span: Signed length of the interval.

        Returns:
            The size of the first step.
        """
        h = super().guess(span)
        del self._tape.stages[1:]
        return h

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try a step, on the tape if it is among the last.

        Args:
            t: Start of the step.
            h: Signed step.
            x: State at ``t``.

        Returns:
            The new state and the error ratio.
        """
        del self._tape.stages[self._have :]
        if self._keep:
            self._tape.armed = abs(self._end - t) <= self._keep * abs(h) * (1.0 + 1e-9)
        return super().attempt(t, h, x)

    def accept(self) -> None:
        """Keep the tape of the accepted step; its end slope opens the next one."""
        end = self.tableau.stages
        if self._keep:
            # Without the end slope, whose tape belongs to the step that it opens.
            self.kept.append(self._tape.stages[:end])
        self._tape.stages = self._tape.stages[end : end + 1]
        super().accept()

    @property
    def end(self) -> TapedStage | None:
        """The tape of the field at the end of the latest step, if there is one."""
        return self._tape.stages[0] if self._tape.stages else None

    def start(self, t: float, x: Tensor) -> None:
        """Begin anew, without slopes and without their tape.

        Args:
            t: The time.
            x: The state.
        """
        self._tape.stages = []
        super().start(t, x)


class _Checkpoint(torch.autograd.Function):
    """Solve forward; pull back step by step."""

    @staticmethod
    def forward(ctx: Any, request: Request, count: int, x0: Tensor, *params: Tensor) -> Any:
        """Solve and keep the state at the start of every accepted step.

        Args:
            ctx: Autograd's context.
            request: The solve.
            count: Number of parameters.
            x0: Packed initial state.
            *params: Parameters.

        Returns:
            States at the requested times after the first.
        """
        marks: list[StepMark] = []
        starts: list[Tensor] = []

        def remember(step: Step) -> None:
            marks.append(StepMark(step.t, step.h, step.outputs))
            starts.append(step.x)

        stepper = TapingRungeKutta(request, x0)
        solution = request.settings.run(
            stepper, x0, request.times,
            first_step=request.first_step, on_step=remember, grid=request.grid,
        )  # fmt: skip
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.marks, ctx.kept = request, marks, list(stepper.kept)
        # The last slope of all opens no further step; an observer wants the adjoint's slope there.
        ctx.end = stepper.end if request.observer is not None else None
        ctx.save_for_backward(*starts, *params)
        return tuple(solution.states[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        """Pull the cotangents back, last step first.

        Args:
            ctx: Autograd's context.
            *gradients: Cotangents of the outputs; None for those that are not used.

        Returns:
            Cotangents of the inputs.
        """
        refuse_create_graph("checkpoint")
        saved = ctx.saved_tensors
        starts, params = saved[: len(ctx.marks)], saved[len(ctx.marks) :]
        kept, ctx.kept, end, ctx.end = ctx.kept, [], ctx.end, None
        with ctx.request.as_forward(starts[0].device):
            cotangent, gradient = pull_back(
                ctx.request, ctx.marks, starts, params, gradients, kept, end
            )
        needed = ctx.needs_input_grad
        return (None, None, cotangent if needed[2] else None, *gradient.total)


def pull_back(
    request: Request,
    marks: Sequence[StepMark],
    starts: Sequence[Tensor],
    params: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    kept: Sequence[Sequence[TapedStage | None]],
    end: TapedStage | None = None,
) -> tuple[Tensor, GradientSum]:
    """Pull cotangents of the outputs back through all steps.

    Args:
        request: The solve.
        marks: The accepted steps.
        starts: States at their starts.
        params: Parameters.
        gradients: Cotangents of the outputs after the first time.
        kept: Tapes of the last steps.
        end: Tape of the field at the end of the solve, if it was kept.

    Returns:
        The cotangent of the initial state, and the parameters' gradient.
    """
    tableau, observer = request.settings.tableau, request.observer
    assert tableau is not None
    by_stages = observer is not None and observer.quadrature.stages and not tableau.adaptive
    gradient = GradientSum(params)
    lam = torch.zeros_like(starts[0])
    joint: Joint | None = None
    for n in reversed(range(len(marks))):
        mark, inside = marks[n], []
        for index, theta in mark.outputs:
            g = gradients[index - 1]
            if g is not None and theta == 1.0:
                lam = lam + g
                joint = joint and replace(joint, smooth=False)
            elif g is not None:
                inside.append((theta, g))
        last = end if n == len(marks) - 1 else None
        step = StepPullback(tableau, request.field, params, mark.t, mark.h, starts[n], last)
        tapes = kept[n - len(marks)] if n >= len(marks) - len(kept) else ()
        told = observe_stages(request, step) if by_stages else None
        before = step.pull(lam, inside, gradient, told, tapes)
        request.took_backward(step.evaluations)
        if observer is not None and not by_stages:
            joint = observe_step(request, step, before, lam, inside, joint)
        lam = before
    return lam, gradient


def refuse_create_graph(adjoint: str) -> None:
    """Raise when a second derivative is asked of an adjoint that has none.

    Args:
        adjoint: Its name.

    Raises:
        GradientError: The backward pass runs under ``create_graph=True``.
    """
    if torch.is_grad_enabled():
        raise GradientError(
            f"adjoint={adjoint!r} gives first derivatives only, but the backward pass was asked "
            "for create_graph=True; use adjoint='direct' for second derivatives."
        )


def solve_checkpoint(request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Solve with the checkpointed discrete adjoint.

    Args:
        request: The solve.
        x0: Packed initial state.
        params: Parameters to differentiate for.

    Returns:
        States at the requested times, the initial one first.
    """
    return [x0, *_Checkpoint.apply(request, len(params), x0, *params)]
