"""The checkpointed adjoint with whole steps, and their pull-backs, compiled.

What is compiled are two functions of parameters, time, step and state; the time loop, which
decides by numbers, stays Python. Small fields gain most: a step becomes one call instead
of a hundred. Where no compiler works, or a field cannot be traced, the eager adjoint takes over
after one warning.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.checkpoint import StepMark, refuse_create_graph, solve_checkpoint
from snopt.adjoint.compiled_steps import (
    COMPILER,
    CompiledSteps,
    PullFunction,
    apart,
    pull_function,
    pure_field,
    step_function,
)
from snopt.adjoint.compiled_tanh import tanh_pass
from snopt.adjoint.panel import Joint, observe_step
from snopt.adjoint.pullback import GradientSum, StepPullback
from snopt.adjoint.request import Request
from snopt.base.errors import SolveError, UnknownName
from snopt.base.packing import Packing
from snopt.base.types import real_dtype
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.settings import Settings
from snopt.ode.solve import Step
from snopt.ode.step import StageBuffer, StageList

#: A kept step: its start (a leaf) and its end, on the tape.
TapedStep = tuple[Tensor, Tensor]


class CompiledRungeKutta(RungeKutta):
    """A stepper whose attempts are one compiled call; dense output stays eager.

    Attributes:
        kept: The last steps on the tape, as in :class:`TapingRungeKutta`.
    """

    def __init__(self, request: Request, x0: Tensor, steps: CompiledSteps) -> None:
        """Bind to a request.

        Args:
            request: The solve.
            x0: Packed initial state.
            steps: The compiled functions.
        """
        tableau = request.settings.tableau
        assert tableau is not None
        super().__init__(tableau, request.field, x0, request.settings.tolerance(request.packing))
        self._steps = steps
        self._end_time, self._keep = request.times[-1], request.keep
        self._taped: TapedStep | None = None
        self.kept: deque[TapedStep | None] = deque(maxlen=request.keep)

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try one step, on the tape if it is among the last.

        Args:
            t: Start of the step.
            h: The step, signed.
            x: State at ``t``.

        Returns:
            The state at ``t + h`` and the error ratio.
        """
        th = torch.tensor((t, h), dtype=self.rows.c.dtype, device=x.device)
        taped = abs(self._end_time - t) <= self._keep * abs(h) * (1.0 + 1e-9)
        if taped:
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                tail, end, ratio = self._steps.taped(leaf, None, th)
            self._taped, x1 = (leaf, tail), tail.detach()
        else:
            self._taped = None
            self._first_slope(t, x)
            x1, end, ratio = self._steps.step(x, self.stages.read(0), th)
        self.nfe += self.tableau.stages + taped
        self._step, self._slope = (t, h, x, x1), end
        return x1, float(ratio)

    def interpolate(self, theta: float) -> Tensor:
        """Dense output, for which the stages between are evaluated eagerly.

        Args:
            theta: Position in the step, from 0 to 1.

        Returns:
            The state there.
        """
        assert self._step is not None
        if not isinstance(self.stages, StageBuffer):
            self.stages, self._have = StageBuffer(len(self.tableau.c), self._step[2]), 0
        return super().interpolate(theta)

    def accept(self) -> None:
        """The compiled step's end slope opens the next step."""
        self.stages = StageList()
        self.stages.write(0, self._slope)
        self._have = 1
        if self._keep:
            self.kept.append(self._taped)


class _NotOneStep(Exception):
    """A solve took more than the one step it was expected to take."""


class OnTapeRungeKutta(CompiledRungeKutta):
    """One compiled step, left on autograd's own tape.

    For solves between near observations, of which one step is the whole: the backward pass then
    goes straight through it, without a backward pass inside the backward pass. With more steps
    the sums over them would be taken in another order than when an observer is told.
    """

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try one step on the tape.

        Args:
            t: Start of the step.
            h: The step, signed.
            x: State at ``t``, on the tape.

        Returns:
            The state at ``t + h`` and the error ratio.

        Raises:
            _NotOneStep: The step does not reach the end.
        """
        if abs(self._end_time - t) > abs(h) * (1.0 + 1e-9):
            raise _NotOneStep
        th = torch.tensor((t, h), dtype=self.rows.c.dtype, device=x.device)
        x1, self._slope, ratio = self._steps.on_tape(x, None, th)
        self.nfe += self.tableau.stages + 1
        self._step = (t, h, x, x1)
        return x1, float(ratio)


class CompiledCheckpoint:
    """Runs requests with compiled steps; stands in for :func:`solve_checkpoint`.

    Attributes:
        broken: Whether compilation failed, so that the eager adjoint is used.
    """

    def __init__(self, field: nn.Module, settings: Settings, adjoint: str) -> None:
        """Prepare; compilation happens at the first call.

        Args:
            field: The module whose steps to compile.
            settings: How to solve.
            adjoint: Name of the adjoint, which must be ``"checkpoint"``.

        Raises:
            UnknownName: A method or an adjoint whose steps are not compiled.
        """
        tableau = settings.tableau
        if adjoint != "checkpoint" or tableau is None or not tableau.fsal:
            raise UnknownName(
                f"compile=True does not go with adjoint={adjoint!r}, method={settings.method!r}; "
                "use adjoint='checkpoint' with dopri5, tsit5 or bosh3."
            )
        self.broken = False
        self._field, self._settings, self._tableau = field, settings, tableau
        self._built: dict[Any, CompiledSteps] = {}

    def __call__(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve with compiled steps.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            States at the requested times, the initial one first.
        """
        if not self.broken and request.autocast is None:
            try:
                steps = self._steps(request.packing, x0, params)
                if _likely_one_step(request):
                    with contextlib.suppress(_NotOneStep):
                        return _solve_on_tape(request, steps, x0)
                return [x0, *_Compiled.apply(request, steps, self, x0, *params)]
            except SolveError:
                raise
            except Exception as failure:  # noqa: BLE001 - whatever a compiler raises, eager works
                self.give_up(failure)
        return solve_checkpoint(request, x0, params)

    def give_up(self, failure: Exception) -> None:
        """Go on without the compiler, and say so once.

        Args:
            failure: What the compiler raised.
        """
        self.broken = True
        reason = str(failure).strip().splitlines() or [type(failure).__name__]
        warnings.warn(
            f"compile=True: the steps of {type(self._field).__name__} could not be compiled "
            f"({type(failure).__name__}: {reason[0]}); going on without the compiler.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _steps(self, packing: Packing, x0: Tensor, params: Sequence[Tensor]) -> CompiledSteps:
        """The compiled functions for this structure of state."""
        # Shapes of a lone tensor may vary; sizes of the parts of a tuple are constants.
        layout = len(packing.layout) if packing.single else packing.sizes
        key = (layout, x0.dtype, x0.device, *map(id, params))
        if key not in self._built:
            names = {id(p): name for name, p in self._field.named_parameters()}
            evaluate = pure_field(self._field, packing, [names[id(p)] for p in params])
            step = step_function(self._field, self._tableau, self._settings, packing)
            pull = pull_function(evaluate, self._tableau)
            options = {**COMPILER, "post_grad_custom_pre_pass": tanh_pass()}
            kind = (type(self._field), self._tableau.name, layout, *(p.shape for p in params))
            functions: dict[str, Callable[..., Any]]
            functions = {"step": step, "taped": step, "on_tape": step, "pull": pull}
            self._built[key] = CompiledSteps(
                **{
                    use: torch.compile(apart(function, (use, kind)), options=options)
                    for use, function in functions.items()
                }
            )
        return self._built[key]


def _likely_one_step(request: Request) -> bool:
    """Whether a solve should take one step, the tape of which may be kept."""
    if request.observer is not None or len(request.times) != 2 or not torch.is_grad_enabled():
        return False
    span = abs(request.times[1] - request.times[0])
    return request.keep > 0 and request.first_step is not None and span <= request.first_step


def _solve_on_tape(request: Request, steps: CompiledSteps, x0: Tensor) -> list[Tensor]:
    """Solve in one compiled step on the tape."""
    stepper = OnTapeRungeKutta(request, x0, steps)
    solution = request.settings.run(stepper, x0, request.times, first_step=request.first_step)
    request.took(solution.stats)
    return solution.states


class _Compiled(torch.autograd.Function):
    """The checkpointed adjoint over compiled steps."""

    @staticmethod
    def forward(ctx: Any, request: Request, steps: CompiledSteps, owner: CompiledCheckpoint,
                x0: Tensor, *params: Tensor) -> Any:  # fmt: skip
        marks: list[StepMark] = []
        starts: list[Tensor] = []

        def remember(step: Step) -> None:
            marks.append(StepMark(step.t, step.h, step.outputs))
            starts.append(step.x)

        x0 = x0.detach()  # like every later state, so that one compiled version serves all
        stepper = CompiledRungeKutta(request, x0, steps)
        solution = request.settings.run(
            stepper, x0, request.times, first_step=request.first_step, on_step=remember
        )
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.marks, ctx.steps, ctx.owner = request, marks, steps, owner
        ctx.kept = list(stepper.kept)
        ctx.save_for_backward(*starts, *params)
        return tuple(solution.states[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        refuse_create_graph("checkpoint")
        kept, ctx.kept = ctx.kept, []
        back = _Back(ctx.request, ctx.steps.pull, ctx.owner, ctx.saved_tensors[len(ctx.marks) :])
        lam = back.run(ctx.marks, ctx.saved_tensors, kept, gradients)
        return (None, None, None, lam if ctx.needs_input_grad[3] else None, *back.gradient.total)


class _Back:
    """Pulling cotangents back through all steps, by compiled calls where they apply."""

    def __init__(self, request: Request, pull: PullFunction, owner: CompiledCheckpoint,
                 params: Sequence[Tensor]) -> None:  # fmt: skip
        assert request.settings.tableau is not None
        self.request, self.pull, self.owner, self.params = request, pull, owner, params
        self.tableau = request.settings.tableau
        self.gradient = GradientSum(params)

    def run(self, marks: Sequence[StepMark], starts: Sequence[Tensor],
            kept: Sequence[TapedStep | None],
            gradients: Sequence[Tensor | None]) -> Tensor:  # fmt: skip
        """Go through the steps, last first."""
        lam = torch.zeros_like(starts[0])
        joint: Joint | None = None
        for n in reversed(range(len(marks))):
            mark, x = marks[n], starts[n]
            found = [(theta, gradients[index - 1]) for index, theta in mark.outputs]
            inside = [(theta, g) for theta, g in found if g is not None and theta != 1.0]
            at_end = [g for theta, g in found if g is not None and theta == 1.0]
            if at_end:
                lam, joint = sum(at_end, start=lam), None
            taped = kept[n - len(marks)] if n >= len(marks) - len(kept) else None
            before = self.through(mark, x, lam, inside, taped)
            if self.request.observer is not None:
                step = StepPullback(
                    self.tableau, self.request.field, self.params, mark.t, mark.h, x
                )
                joint = observe_step(self.request, step, before, lam, inside, joint)
            lam = before
        return lam

    def through(self, mark: StepMark, x: Tensor, lam: Tensor,
                inside: Sequence[tuple[float, Tensor]],
                taped: TapedStep | None) -> Tensor:  # fmt: skip
        """Pull back through one step."""
        if inside or self.owner.broken:
            return self.eagerly(mark, x, lam, inside)
        try:
            if taped is not None:
                leaf, tail = taped
                before, *rest = torch.autograd.grad(
                    tail, (leaf, *self.params), lam, allow_unused=True
                )
                before = torch.zeros_like(lam) if before is None else before
            else:
                th = torch.tensor((mark.t, mark.h), dtype=real_dtype(x.dtype), device=x.device)
                before, rest = self.pull(x, lam, th, self.params)
                self.request.took_backward(self.tableau.stages)
        except Exception as failure:  # noqa: BLE001 - as in the forward pass
            self.owner.give_up(failure)
            return self.eagerly(mark, x, lam, inside)
        self.gradient.add(rest)
        return before

    def eagerly(self, mark: StepMark, x: Tensor, lam: Tensor,
                inside: Sequence[tuple[float, Tensor]]) -> Tensor:  # fmt: skip
        """Pull back through one step without the compiler."""
        step = StepPullback(self.tableau, self.request.field, self.params, mark.t, mark.h, x)
        before = step.pull(lam, inside, self.gradient)
        self.request.took_backward(step.evaluations)
        return before
