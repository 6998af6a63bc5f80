"""The checkpointed discrete adjoint: the default.

Forward, the state at the start of every accepted step is kept and nothing else, except that
the last ``keep`` steps keep their tape (see :mod:`snopt.adjoint.tape_budget`). Backward, one
step at a time is run again, unless its tape was kept, and pulled back through its stages. The
gradient is exact for the discretised solution, the backward pass has no error control and
rejects nothing, and memory is one state a step.

How a step is run and pulled back is left to a :class:`StepRunner`: eagerly, stage by stage
(:mod:`snopt.adjoint.eager_steps`), or compiled (:mod:`snopt.adjoint.compiled_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from snopt.adjoint.panel import Joint, observe_stages, observe_step
from snopt.adjoint.pullback import GradientSum, StageListener, StepPullback
from snopt.adjoint.request import Request
from snopt.base.errors import GradientError
from snopt.base.isolation import Again, RandomState
from snopt.ode.runge_kutta import Stepper
from snopt.ode.solve import Step


class TapingStepper(Stepper, Protocol):
    """A stepper that keeps the tape of the steps for which :meth:`Request.tapes` says so."""

    def tape(self) -> Any:
        """What a runner needs to pull back through the step tried last; None if nothing."""


class StepRunner(Protocol):
    """How a step is run forward and pulled back.

    Attributes:
        repeats: Whether a step that drew random numbers can be run again with the same ones.
    """

    repeats: bool

    def stepper(self, request: Request, x0: Tensor) -> TapingStepper:
        """A stepper for one solve."""

    def pull(self, step: StepPullback, cotangent: Tensor, inside: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None) -> Tensor:  # fmt: skip
        """Pull back through a step, of which ``step.kept`` is what :meth:`tape` gave."""


class CannotRepeat(Exception):
    """A step drew random numbers, and its runner could not draw them again."""


@dataclass(frozen=True)
class StepMark:
    """What is remembered of an accepted step, apart from its state.

    Attributes:
        t: Start.
        h: Signed step.
        outputs: ``(index, theta)`` of the requested times that the step serves.
    """

    t: float
    h: float
    outputs: tuple[tuple[int, float], ...]

    @property
    def dense(self) -> bool:
        """Whether a requested time lies strictly inside."""
        return any(theta != 1.0 for _, theta in self.outputs)


class _Checkpoint(torch.autograd.Function):
    """Solve forward; pull back step by step."""

    @staticmethod
    def forward(ctx: Any, request: Request, runner: StepRunner, x0: Tensor, *params: Tensor) -> Any:
        """Solve and keep the state at the start of every accepted step.

        Args:
            ctx: Autograd's context.
            request: The solve.
            runner: How steps are run.
            x0: Packed initial state.
            *params: Parameters.

        Returns:
            States at the requested times after the first.

        Raises:
            CannotRepeat: The backward pass would have to repeat random numbers, and the runner
                cannot.
        """
        x0 = x0.detach()  # like every later state, so that one compiled version serves all
        marks: list[StepMark] = []
        starts: list[Tensor] = []
        kept: list[Any] = []
        before = RandomState(x0.device)
        stepper = runner.stepper(request, x0)

        def remember(step: Step) -> None:
            marks.append(StepMark(step.t, step.h, step.outputs))
            starts.append(step.x)
            kept.append(stepper.tape())
            if len(kept) > request.keep and not before.moved():
                # Steps that draw no random numbers can be run again from their states alone.
                kept[-request.keep - 1] = None

        solution = request.settings.run(
            stepper, x0, request.times,
            first_step=request.first_step, on_step=remember, grid=request.grid,
        )  # fmt: skip
        if not runner.repeats and _runs_again(request, marks, kept) and before.moved():
            raise CannotRepeat("the field draws random numbers, which cannot be drawn again")
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.runner, ctx.marks, ctx.kept = request, runner, marks, kept
        ctx.before, ctx.after = before, RandomState(x0.device)
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

        Raises:
            GradientError: A second derivative, or a second pass through random numbers that the
                runner cannot repeat.
        """
        refuse_create_graph("checkpoint")
        n = len(ctx.marks)
        starts, params = ctx.saved_tensors[:n], ctx.request.targets(ctx.saved_tensors[n:])
        kept, ctx.kept = ctx.kept, None
        with ctx.request.again(starts[0].device) as field:
            if kept is None:  # a second backward pass: the first one has used up the tapes
                kept = [None] * n
                if ctx.before.differs(ctx.after):
                    field.isolate()
                    kept = _drawn_again(ctx.request, ctx.runner, starts[0], ctx.before)
            pull = _PullBack(ctx.request, ctx.runner, field, params)
            lam = pull.run(ctx.marks, starts, kept, gradients)
        return (None, None, lam if ctx.needs_input_grad[2] else None, *pull.gradient.total)


def _runs_again(request: Request, marks: Sequence[StepMark], kept: Sequence[Any]) -> bool:
    """Whether the backward pass will evaluate the field."""
    return request.observer is not None or any(
        tape is None or mark.dense for mark, tape in zip(marks, kept, strict=True)
    )


def _drawn_again(request: Request, runner: StepRunner, x0: Tensor,
                 before: RandomState) -> list[Any]:  # fmt: skip
    """The random states of all steps, by solving once more from the same random numbers."""
    if not runner.repeats:
        raise GradientError(
            "a second backward pass through a compiled solve whose field draws random numbers: the "
            "first one has used up its tape; use compile=False."
        )
    request = replace(request, keep=0, settings=request.settings.calling(None))
    kept: list[Any] = []
    stepper, now = runner.stepper(request, x0), RandomState(x0.device)
    before.restore()
    try:
        request.settings.run(
            stepper, x0, request.times, first_step=request.first_step,
            on_step=lambda step: kept.append(stepper.tape()), grid=request.grid,
        )  # fmt: skip
    finally:
        now.restore()
    request.took_backward(stepper.nfe)
    return kept


class _PullBack:
    """Pulling cotangents of the outputs back through all steps."""

    def __init__(self, request: Request, runner: StepRunner, field: Again,
                 params: Sequence[Tensor]) -> None:  # fmt: skip
        self.request, self.runner, self.field, self.params = request, runner, field, params
        self.gradient = GradientSum(params)
        assert request.settings.tableau is not None
        self.tableau, observer = request.settings.tableau, request.observer
        self.by_stages = (
            observer is not None and observer.quadrature.stages and not self.tableau.adaptive
        )
        self.joint: Joint | None = None

    def run(self, marks: Sequence[StepMark], starts: Sequence[Tensor], kept: list[Any],
            gradients: Sequence[Tensor | None]) -> Tensor:  # fmt: skip
        """Go through the steps, last first, and give their tapes free; returns the cotangent."""
        lam = torch.zeros_like(starts[0])
        end = self.tableau.stages
        for n in reversed(range(len(marks))):
            mark, inside = marks[n], []
            for index, theta in mark.outputs:
                g = gradients[index - 1]
                if g is not None and theta == 1.0:
                    lam = lam + g
                    self.joint = self.joint and replace(self.joint, smooth=False)
                elif g is not None:
                    inside.append((theta, g))
            step = StepPullback(
                self.tableau, self.field, self.params, mark.t, mark.h, starts[n], kept.pop(),
                shared=n > 0 and marks[n - 1].dense, context=self.request.context,
            )  # fmt: skip
            if n == len(marks) - 1 and not inside and isinstance(step.kept, list):
                last = step.kept[end] if len(step.kept) > end else None
                step.end = last if isinstance(last, tuple) else None
            lam = self.through(step, lam, inside)
        return lam

    def through(self, step: StepPullback, lam: Tensor,
                inside: Sequence[tuple[float, Tensor]]) -> Tensor:  # fmt: skip
        """Pull back through one step, and tell the observer."""
        told = observe_stages(self.request, step) if self.by_stages else None
        before = self.runner.pull(step, lam, inside, self.gradient, told)
        self.request.took_backward(step.evaluations)
        if self.request.observer is not None and not self.by_stages:
            self.joint = observe_step(self.request, step, before, lam, inside, self.joint)
        return before


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


def solve_checkpoint(request: Request, x0: Tensor, params: Sequence[Tensor],
                     runner: StepRunner) -> list[Tensor]:  # fmt: skip
    """Solve with the checkpointed discrete adjoint.

    Args:
        request: The solve.
        x0: Packed initial state.
        params: Parameters to differentiate for.
        runner: How steps are run and pulled back.

    Returns:
        States at the requested times, the initial one first.
    """
    if request.too_many_steps:
        request.refuse_steps()
    return [x0, *_Checkpoint.apply(request, runner, x0, *params)]
