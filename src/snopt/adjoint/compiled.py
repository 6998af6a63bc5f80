"""Steps of the checkpointed adjoint, and their pull-backs, as compiled functions.

Two functions of parameters, time, step and state are compiled; the time loop, which branches on
numbers, stays in Python. Small fields gain most, because a step becomes one call instead of a
hundred. If there is no compiler or a field cannot be traced, a warning is issued and steps run
eagerly.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.chain import Joined, RunKind, run_function
from snopt.adjoint.checkpoint import solve_checkpoint
from snopt.adjoint.compiled_passes import compiler_options
from snopt.adjoint.compiled_steps import (
    PullFunction,
    StepFunction,
    apart,
    pull_function,
    pure_field,
    step_function,
)
from snopt.adjoint.eager_steps import EAGER
from snopt.adjoint.pullback import GradientSum, StageListener, StepPullback
from snopt.adjoint.request import Adjoint, Request
from snopt.adjoint.tape_budget import allowed
from snopt.base.backprop import backpropagate
from snopt.base.context import Context, moving, with_moving
from snopt.base.errors import SolveError
from snopt.base.isolation import RandomState
from snopt.base.modules import buffers_of
from snopt.base.packing import Packing
from snopt.base.types import real_dtype
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.settings import Settings
from snopt.ode.step import StageBuffer, StageList, Tolerance, fill, stage_times

#: The tape of a step: its start (a leaf) and its end.
TapedStep = tuple[Tensor, Tensor]


class CompiledRungeKutta(RungeKutta):
    """A stepper whose attempts are one compiled call; dense output is eager."""

    def __init__(self, request: Request, x0: Tensor, steps: CompiledSteps) -> None:
        tableau = request.settings.tableau
        assert tableau is not None
        super().__init__(tableau, request.field, x0, steps.tolerance)
        self._request, self._steps = request, steps
        self._taped: TapedStep | None = None

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Attempt a step, and keep its tape if it is one of the last steps."""
        th = _numbers(t, h, x)
        if self._request.steps_left(t, h) <= _whole_steps(self._request):
            leaf = x.detach().requires_grad_()
            with torch.enable_grad():
                tail, end, ratio = self._steps.taped(leaf, None, th, self._request.context)
            self._taped, x1 = (leaf, tail), tail.detach()
            self.nfe += 1
        else:
            self._taped = None
            self._first_slope(t, x)
            x1, end, ratio = self._steps.step(x, self.stages.read(0), th, self._request.context)
        self.nfe += self.tableau.stages
        self._step, self._slope = (t, h, x, x1), end
        return x1, float(ratio)

    def interpolate(self, theta: float) -> Tensor:
        """Return the state at ``t + theta * h``; the inner stages are evaluated eagerly."""
        assert self._step is not None
        t, h, x, _ = self._step
        end = self.tableau.stages
        if not isinstance(self.stages, StageBuffer):
            known, self.stages = self.stages, StageBuffer(len(self.tableau.c), x)
            if self._have:
                self.stages.write(0, known.read(0))
        if self._have < end:
            times = stage_times(self.rows, t, h)
            fill(self.stages, self.rows, self.field, times, h, x, self._have, end)
            self.stages.write(end, self._slope)
            self.nfe += end - self._have
            self._have = end + 1
        return super().interpolate(theta)

    def accept(self) -> None:
        """Use the end slope as the first slope of the next step."""
        self.stages, self._have = StageList(self._slope), 1

    def tape(self) -> TapedStep | None:
        """Return the tape of the last attempt, if it has one."""
        return self._taped

    def trim(self, kept: TapedStep, tapes: int) -> TapedStep | None:
        """Return the tape of a step, or None if fewer than half of its evaluations may be kept."""
        return kept if tapes and 2 * tapes >= self.tableau.stages else None


class _NotOneStep(Exception):
    """A solve that was expected to take one step needs more."""


class OnTapeRungeKutta(CompiledRungeKutta):
    """One compiled step on autograd's own tape.

    Used for solves of a single step, such as between close observations. Autograd differentiates
    the step directly, without a nested backward pass. Over several steps, gradients would be summed
    in another order than with an observer. ``context`` is on the caller's tape.
    """

    def __init__(self, request: Request, x0: Tensor, steps: CompiledSteps,
                 context: Context) -> None:  # fmt: skip
        super().__init__(request, x0, steps)
        self._context = context

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Attempt a step; raise ``_NotOneStep`` if it does not reach the end."""
        if abs(self._request.times[-1] - t) > abs(h) * (1.0 + 1e-9):
            raise _NotOneStep
        th = _numbers(t, h, x)
        x1, self._slope, ratio = self._steps.on_tape(x, None, th, self._context)
        self.nfe += self.tableau.stages + 1
        self._step = (t, h, x, x1)
        return x1, float(ratio)


class CompiledSteps:
    """Compiled steps and pull-backs for one structure of states.

    Each use of a step has its own function, compiled for fixed sizes, varying sizes, one row, and a
    state with or without a gradient. A single function would exceed the compiler's recompilation
    limit.

    Attributes:
        tolerance: the tolerance of the steps.
        step: an attempt with a known first slope and without a tape.
        taped: an attempt with its own tape.
        on_tape: an attempt on the caller's tape.
    """

    repeats = False

    def __init__(self, owner: CompiledCheckpoint, step: StepFunction, pull: PullFunction,
                 tolerance: Tolerance, kind: Hashable) -> None:  # fmt: skip
        self._owner, self._plain, self._kind, self.tolerance = owner, step, kind, tolerance
        self._options = compiler_options()
        self.step, self.taped = self._compiled("step", step), self._compiled("taped", step)
        self.on_tape, self._pull = self._compiled("on_tape", step), self._compiled("pull", pull)
        self._runs: dict[RunKind, Callable[..., Any]] = {}

    def _compiled(self, use: Hashable, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(apart(function, (use, self._kind)), options=self._options)

    def run(self, kind: RunKind, packing: Packing) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return steps on the caller's tape, each followed by an update."""
        if kind not in self._runs:
            self._runs[kind] = self._compiled(kind, run_function(self._plain, kind, packing))
        return self._runs[kind]

    def stepper(self, request: Request, x0: Tensor) -> CompiledRungeKutta:
        """Return a stepper for one solve."""
        return CompiledRungeKutta(request, x0, self)

    def pull(self, step: StepPullback, cotangent: Tensor, inside: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None) -> Tensor:  # fmt: skip
        """Pull back through a step, eagerly if it has outputs inside."""
        taped, step.kept = step.kept, None
        if not inside and not self._owner.broken:
            try:
                before, rest = self._pulled(step, taped, cotangent)
            except Exception as failure:  # noqa: BLE001 - whatever a compiler raises, eager works
                self._owner.give_up(failure)
            else:
                gradient.add(rest)
                return before
        return step.pull(cotangent, inside, gradient, on_stage)

    def _pulled(self, step: StepPullback, taped: TapedStep | None,
                cotangent: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:  # fmt: skip
        """Return cotangents of the state and of the parameters."""
        x = step.x
        if taped is not None:
            leaf, tail = taped
            before, *rest = backpropagate((tail,), (leaf, *step.params), (cotangent,))
            return torch.zeros_like(x) if before is None else before, rest
        step.field.isolate()
        th = _numbers(step.t, step.h, x)
        before, rest = self._pull(x, cotangent, th, step.params, step.context)
        step.evaluations += step.tableau.stages
        return before, rest


class CompiledCheckpoint(Adjoint):
    """The checkpointed adjoint of one field with compiled steps.

    Attributes:
        broken: whether compilation failed and eager steps are used.
    """

    name = "checkpoint"

    def __init__(self, field: nn.Module, settings: Settings, keep: int | None) -> None:
        assert settings.tableau is not None
        self.broken = False
        self._field, self._settings, self._keep = field, settings, keep
        self._tableau = settings.tableau
        self._built: dict[Any, CompiledSteps] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Exclude compiled functions; copies compile their own."""
        return {**self.__dict__, "_built": {}}

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor],
              joined: Joined | None = None) -> list[Tensor]:  # fmt: skip
        """Solve with compiled steps, or with eager ones if compilation fails."""
        if torch.is_grad_enabled():
            request.allowed = allowed(request, x0, params, self._keep)
        if not self.broken and request.autocast is None:
            undo = Undo(self._field, x0.device)
            try:
                return self._solve(request, x0, params, joined, undo)
            except SolveError:
                raise
            except Exception as failure:  # noqa: BLE001 - whatever a compiler raises, eager works
                self.give_up(failure)
            undo()
        return solve_checkpoint(request, x0, params, EAGER)

    def _solve(self, request: Request, x0: Tensor, params: Sequence[Tensor],
               joined: Joined | None, undo: Undo) -> list[Tensor]:  # fmt: skip
        """Solve with compiled steps; errors of the compiler are not caught."""
        own = params[: len(params) - len(moving(request.context))]
        steps = self._steps(request.packing, x0, own)
        if not _likely_one_step(request):
            return solve_checkpoint(request, x0, params, steps)
        if joined is not None:
            for count in joined.runs(request, x0):
                if joined.attempt(count, request, x0, steps):
                    return [x0]
                undo()
            return solve_checkpoint(request, x0, params, steps)
        with contextlib.suppress(_NotOneStep):
            context = with_moving(request.context, params[len(own) :])
            solution = request.run(OnTapeRungeKutta(request, x0, steps, context), x0)
            request.took(solution.stats)
            return solution.states
        return solve_checkpoint(request, x0, params, steps)

    def give_up(self, failure: Exception) -> None:
        """Continue without the compiler, after a warning."""
        self.broken = True
        reason = str(failure).strip().splitlines() or [type(failure).__name__]
        warnings.warn(
            f"compile=True: the steps of {type(self._field).__name__} could not be compiled "
            f"({type(failure).__name__}: {reason[0]}); continuing without compilation.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _steps(self, packing: Packing, x0: Tensor, params: Sequence[Tensor]) -> CompiledSteps:
        """Return the compiled functions for this structure of states."""
        # The shape of a single tensor may vary; the sizes in a tuple are constants.
        layout = len(packing.layout) if packing.single else packing.sizes
        key = (layout, x0.dtype, x0.device, *map(id, params))
        if key not in self._built:
            names = {id(p): name for name, p in self._field.named_parameters()}
            evaluate = pure_field(self._field, packing, [names[id(p)] for p in params])
            tolerance = self._settings.tolerance(packing)
            step = step_function(self._field, self._tableau, tolerance, packing)
            pull = pull_function(evaluate, self._tableau)
            kind = (type(self._field), self._tableau.name, layout, *(p.shape for p in params))
            self._built[key] = CompiledSteps(self, step, pull, tolerance, kind)
        return self._built[key]


class Undo:
    """Undoes what evaluations of a field have done to random state and buffers."""

    def __init__(self, field: nn.Module, device: torch.device) -> None:
        self._before = RandomState(device)
        self._buffers = [(buffer, buffer.clone()) for buffer in buffers_of(field)]

    def __call__(self) -> None:
        """Restore both."""
        self._before.restore()
        for buffer, old in self._buffers:
            if not torch.equal(buffer, old):  # a graph may hold an unchanged one
                buffer.copy_(old)


def _numbers(t: float, h: float, like: Tensor) -> Tensor:
    """Return ``(t, h)`` as a tensor, without waiting for the device."""
    # With two points, linspace returns both ends exactly, in one operation.
    return torch.linspace(t, h, 2, dtype=real_dtype(like.dtype), device=like.device)


def _likely_one_step(request: Request) -> bool:
    """Return whether a solve will probably take one step, and may keep its tape."""
    if request.observer is not None or len(request.times) != 2 or not torch.is_grad_enabled():
        return False
    if request.settings.callbacks is not None:
        return False  # callbacks would be called twice if the solve needs more steps
    span = abs(request.times[1] - request.times[0])
    fits = request.first_step is not None and span <= request.first_step
    return fits and _whole_steps(request) > 0


def _whole_steps(request: Request) -> int:
    """Return the number of steps that keep their tape, which has no parts, rounded."""
    tableau = request.settings.tableau
    return 0 if tableau is None else (request.allowed.tapes + tableau.stages // 2) // tableau.stages
