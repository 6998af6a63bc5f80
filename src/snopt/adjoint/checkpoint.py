"""The checkpointed discrete adjoint, the default.

The forward pass keeps the state at the start of every accepted step, and the tapes of the last
evaluations (:mod:`snopt.adjoint.tape_budget`). The backward pass recomputes one step at a time,
unless its tape was kept, and pulls the cotangent back through its stages. The gradient is exact for
the discretised solution, and memory is one state per step.

A :class:`StepRunner` runs a step and pulls back through it: eagerly, stage by stage
(:mod:`snopt.adjoint.eager_steps`), or compiled (:mod:`snopt.adjoint.compiled_steps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from snopt.adjoint.panel import Joint, observe_stages, observe_step
from snopt.adjoint.pullback import GradientSum, StageListener, StepPullback, StepTape
from snopt.adjoint.request import Allowed, Request
from snopt.adjoint.tape_budget import Kept
from snopt.base.errors import GradientError
from snopt.base.isolation import Again, RandomState
from snopt.ode.runge_kutta import Stepper
from snopt.ode.solve import Step


class TapingStepper(Stepper, Protocol):
    """A stepper that keeps the tapes of the last ``request.allowed.tapes`` evaluations."""

    def tape(self) -> Any:
        """Return what the runner needs to pull back through the last attempt, or None."""

    def trim(self, kept: Any, tapes: int) -> Any:
        """Return what :meth:`tape` returned with at most so many tapes of evaluations."""


class StepRunner(Protocol):
    """Runs steps and pulls cotangents back through them.

    Attributes:
        repeats: whether a step that drew random numbers can be run again with the same ones.
    """

    repeats: bool

    def stepper(self, request: Request, x0: Tensor) -> TapingStepper:
        """Return a stepper for one solve."""

    def pull(self, step: StepPullback, cotangent: Tensor, inside: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None) -> Tensor:  # fmt: skip
        """Pull back through a step as :meth:`StepPullback.pull` does.

        ``step.kept`` is what :meth:`TapingStepper.tape` returned.
        """


class CannotRepeat(Exception):
    """A step drew random numbers, and its runner could not draw them again."""


@dataclass(frozen=True)
class StepMark:
    """An accepted step without its states.

    Attributes:
        outputs: ``(index, theta)`` of the requested times in the step.
    """

    t: float
    h: float
    outputs: tuple[tuple[int, float], ...]

    @property
    def dense(self) -> bool:
        """Whether a requested time lies strictly inside the step."""
        return any(theta != 1.0 for _, theta in self.outputs)


class _Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, request: Request, runner: StepRunner, x0: Tensor, *params: Tensor) -> Any:
        x0 = x0.detach()  # like every later state, so all share one compiled version
        marks: list[StepMark] = []
        starts: list[Tensor] = []
        kept = Kept()
        before = RandomState(x0.device)
        stepper = runner.stepper(request, x0)
        assert request.settings.tableau is not None
        stages, allowed = request.settings.tableau.stages, request.allowed
        full, rest = divmod(allowed.tapes, stages)

        def remember(step: Step) -> None:
            marks.append(StepMark(step.t, step.h, step.outputs))
            starts.append(step.x)
            kept.append(stepper.tape())
            if len(kept) > full and not before.moved():
                # Steps that draw no random numbers can be run again from their states alone.
                for n, tapes in ((full + 1, rest), (full + 2, 0)):
                    if n <= len(kept) and kept[-n] is not None:
                        kept[-n] = stepper.trim(kept[-n], tapes)

        solution = request.run(stepper, x0, on_step=remember)
        if not runner.repeats and _runs_again(request, marks, kept) and before.moved():
            raise CannotRepeat("the random numbers of the field cannot be reproduced")
        kept.use(allowed.tape_bytes * min(stages * len(kept), allowed.tapes) + _slope_bytes(kept))
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.runner, ctx.marks, ctx.kept = request, runner, marks, kept
        ctx.before, ctx.after = before, RandomState(x0.device)
        ctx.save_for_backward(*starts, *params)
        return tuple(solution.states[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        refuse_create_graph("checkpoint")
        n, saved = len(ctx.marks), ctx.saved_tensors
        starts, params = saved[:n], ctx.request.targets(saved[n:])
        kept, ctx.kept = ctx.kept, None
        with ctx.request.again(starts[0].device) as field:
            if kept is None:  # in a second backward pass the tapes are already freed
                kept = [None] * n
                if ctx.before.differs(ctx.after):
                    field.isolate()
                    kept = _drawn_again(ctx.request, ctx.runner, starts[0], ctx.before)
            pull = _PullBack(ctx.request, ctx.runner, field, params)
            lam = pull.run(ctx.marks, starts, kept, gradients)
        return (None, None, lam if ctx.needs_input_grad[2] else None, *pull.gradient.total)


def _slope_bytes(kept: Sequence[Any]) -> int:
    """Return the bytes of the stage values that eager steps keep."""
    slopes = [step.slopes for step in kept if isinstance(step, StepTape)]
    return sum(each.nbytes for each in slopes if each is not None)


def _runs_again(request: Request, marks: Sequence[StepMark], kept: Sequence[Any]) -> bool:
    """Return whether the backward pass will evaluate the field."""
    return request.observer is not None or any(
        tape is None or mark.dense for mark, tape in zip(marks, kept, strict=True)
    )


def _drawn_again(request: Request, runner: StepRunner, x0: Tensor,
                 before: RandomState) -> list[Any]:  # fmt: skip
    """Return the random states of all steps, by solving again from the same random numbers."""
    if not runner.repeats:
        raise GradientError(
            "the field of a compiled solve draws random numbers and its tape was freed by the "
            "first backward pass, so a second backward pass is not possible; use compile=False."
        )
    request = replace(request, allowed=Allowed(), settings=request.settings.calling(None))
    kept: list[Any] = []
    stepper, now = runner.stepper(request, x0), RandomState(x0.device)
    before.restore()
    try:
        request.run(stepper, x0, on_step=lambda step: kept.append(stepper.tape()))
    finally:
        now.restore()
    request.took_backward(stepper.nfe)
    return kept


class _PullBack:
    """Pulls cotangents of the outputs back through all steps."""

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
        """Pull back through the steps, the last one first, and free their tapes."""
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
            if n == len(marks) - 1 and not inside and isinstance(step.kept, StepTape):
                last = step.kept.stages[end] if len(step.kept.stages) > end else None
                step.end = last if isinstance(last, tuple) else None
            lam = self.through(step, lam, inside)
        return lam

    def through(self, step: StepPullback, lam: Tensor,
                inside: Sequence[tuple[float, Tensor]]) -> Tensor:  # fmt: skip
        """Pull back through one step, and pass its nodes to the observer."""
        listener = observe_stages(self.request, step) if self.by_stages else None
        before = self.runner.pull(step, lam, inside, self.gradient, listener)
        self.request.took_backward(step.evaluations)
        if self.request.observer is not None and not self.by_stages:
            self.joint = observe_step(self.request, step, before, lam, inside, self.joint)
        return before


def refuse_create_graph(adjoint: str) -> None:
    """Raise GradientError if the backward pass runs under ``create_graph=True``."""
    if torch.is_grad_enabled():
        raise GradientError(
            f"adjoint={adjoint!r} gives first derivatives only, but backward was called with "
            "create_graph=True; use adjoint='direct' for second derivatives."
        )


def solve_checkpoint(request: Request, x0: Tensor, params: Sequence[Tensor],
                     runner: StepRunner) -> list[Tensor]:  # fmt: skip
    """Solve with the checkpointed discrete adjoint; see :meth:`Adjoint.solve`."""
    if request.too_many_steps:
        request.refuse_steps()
    return [x0, *_Checkpoint.apply(request, runner, x0, *params)]
