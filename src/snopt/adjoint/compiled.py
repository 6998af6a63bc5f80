"""Steps of the checkpointed adjoint, and their pull-backs, as compiled functions.

What is compiled are two functions of parameters, time, step and state; the time loop, which
decides by numbers, stays Python. Small fields gain most: a step becomes one call instead
of a hundred. Where no compiler works, or a field cannot be traced, eager steps take over
after one warning.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.checkpoint import solve_checkpoint
from snopt.adjoint.compiled_steps import COMPILER, apart, pull_function, pure_field, step_function
from snopt.adjoint.compiled_tanh import tanh_pass
from snopt.adjoint.eager_steps import EAGER
from snopt.adjoint.pullback import GradientSum, StageListener, StepPullback
from snopt.adjoint.request import Adjoint, Request
from snopt.adjoint.tape_budget import steps_to_keep
from snopt.base.context import Context, moving, with_moving
from snopt.base.errors import SolveError
from snopt.base.isolation import RandomState
from snopt.base.packing import Packing
from snopt.base.types import real_dtype
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.settings import Settings
from snopt.ode.step import StageBuffer, StageList

#: A kept step: its start (a leaf) and its end, on the tape.
TapedStep = tuple[Tensor, Tensor]


class CompiledRungeKutta(RungeKutta):
    """A stepper whose attempts are one compiled call; dense output stays eager."""

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
        self._request, self._steps = request, steps
        self._taped: TapedStep | None = None

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try one step, on a tape of its own if it is among the last.

        Args:
            t: Start of the step.
            h: The step, signed.
            x: State at ``t``.

        Returns:
            The state at ``t + h`` and the error ratio.
        """
        th = torch.tensor((t, h), dtype=self.rows.c.dtype, device=x.device)
        if self._request.tapes(t, h):
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

    def tape(self) -> TapedStep | None:
        """The tape of the step tried last, if it has one.

        Returns:
            Its start and its end.
        """
        return self._taped


class _NotOneStep(Exception):
    """A solve took more than the one step it was expected to take."""


class OnTapeRungeKutta(CompiledRungeKutta):
    """One compiled step, left on autograd's own tape.

    For solves between near observations, of which one step is the whole: the backward pass then
    goes straight through it, without a backward pass inside the backward pass. With more steps
    the sums over them would be taken in another order than when an observer is told.
    """

    def __init__(self, request: Request, x0: Tensor, steps: CompiledSteps,
                 context: Context) -> None:  # fmt: skip
        """Bind to a request.

        Args:
            request: The solve.
            x0: Packed initial state.
            steps: The compiled functions.
            context: The context on the caller's tape.
        """
        super().__init__(request, x0, steps)
        self._context = context

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
        if abs(self._request.times[-1] - t) > abs(h) * (1.0 + 1e-9):
            raise _NotOneStep
        th = torch.tensor((t, h), dtype=self.rows.c.dtype, device=x.device)
        x1, self._slope, ratio = self._steps.on_tape(x, None, th, self._context)
        self.nfe += self.tableau.stages + 1
        self._step = (t, h, x, x1)
        return x1, float(ratio)


class CompiledSteps:
    """Runs and pulls back steps of one structure of state by compiled functions.

    A step has a function for each of its uses. Each is compiled for fixed sizes, sizes that vary,
    one row, and a state with or without a gradient: together more than the compiler's allowance.

    Attributes:
        step: An attempt that begins with a known slope, without a tape.
        taped: An attempt on a tape of its own.
        on_tape: An attempt on the caller's tape.
    """

    repeats = False

    def __init__(self, owner: CompiledCheckpoint, functions: dict[str, Callable[..., Any]]) -> None:
        """Take the compiled functions.

        Args:
            owner: Told when one of them fails.
            functions: ``step``, ``taped``, ``on_tape`` and ``pull``.
        """
        self.step, self.taped = functions["step"], functions["taped"]
        self.on_tape, self._pull = functions["on_tape"], functions["pull"]
        self._owner = owner

    def stepper(self, request: Request, x0: Tensor) -> CompiledRungeKutta:
        """A stepper for one solve.

        Args:
            request: The solve.
            x0: Packed initial state.

        Returns:
            The stepper.
        """
        return CompiledRungeKutta(request, x0, self)

    def pull(self, step: StepPullback, cotangent: Tensor, inside: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None) -> Tensor:  # fmt: skip
        """Pull back through a step; eagerly where outputs lie inside.

        Args:
            step: The step.
            cotangent: Cotangent of the state at its end.
            inside: ``(theta, cotangent)`` of outputs strictly inside.
            gradient: Where parameter gradients are added.
            on_stage: Not used: compiled methods are adaptive.

        Returns:
            Cotangent of the state at its start.
        """
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
        """Cotangents of the state and of the parameters."""
        x = step.x
        if taped is not None:
            leaf, tail = taped
            before, *rest = torch.autograd.grad(
                tail, (leaf, *step.params), cotangent, allow_unused=True
            )
            return torch.zeros_like(x) if before is None else before, rest
        step.field.isolate()
        th = torch.tensor((step.t, step.h), dtype=real_dtype(x.dtype), device=x.device)
        before, rest = self._pull(x, cotangent, th, step.params, step.context)
        step.evaluations += step.tableau.stages
        return before, rest


class CompiledCheckpoint(Adjoint):
    """The checkpointed adjoint of one field with compiled steps.

    Attributes:
        broken: Whether compilation failed, so that eager steps are used.
    """

    name = "checkpoint"

    def __init__(self, field: nn.Module, settings: Settings, keep: int | None) -> None:
        """Prepare; compilation happens at the first call.

        Args:
            field: The module whose steps to compile.
            settings: How to solve, by a method whose error estimate uses the end slope.
            keep: As of :class:`snopt.Checkpoint`.
        """
        assert settings.tableau is not None
        self.broken = False
        self._field, self._settings, self._keep = field, settings, keep
        self._tableau = settings.tableau
        self._built: dict[Any, CompiledSteps] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is compiled: copies compile anew."""
        return {**self.__dict__, "_built": {}}

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve with compiled steps.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            States at the requested times, the initial one first.
        """
        if torch.is_grad_enabled():
            request.keep = steps_to_keep(request, x0, params, self._keep)
        if not self.broken and request.autocast is None:
            before = RandomState(x0.device)
            buffers = [(buffer, buffer.clone()) for buffer in self._field.buffers()]
            try:
                return self._solve(request, x0, params)
            except SolveError:
                raise
            except Exception as failure:  # noqa: BLE001 - whatever a compiler raises, eager works
                self.give_up(failure)
            before.restore()
            for buffer, old in buffers:
                buffer.copy_(old)
        return solve_checkpoint(request, x0, params, EAGER)

    def _solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve with compiled steps, or raise what the compiler raises."""
        own = params[: len(params) - len(moving(request.context))]
        steps = self._steps(request.packing, x0, own)
        if _likely_one_step(request):
            with contextlib.suppress(_NotOneStep):
                context = with_moving(request.context, params[len(own) :])
                stepper = OnTapeRungeKutta(request, x0, steps, context)
                first = request.first_step
                solution = request.settings.run(stepper, x0, request.times, first_step=first)
                request.took(solution.stats)
                return solution.states
        return solve_checkpoint(request, x0, params, steps)

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
                self,
                {
                    use: torch.compile(apart(function, (use, kind)), options=options)
                    for use, function in functions.items()
                },
            )
        return self._built[key]


def _likely_one_step(request: Request) -> bool:
    """Whether a solve should take one step, the tape of which may be kept."""
    if request.observer is not None or len(request.times) != 2 or not torch.is_grad_enabled():
        return False
    if request.settings.callbacks is not None:
        return False  # a step given up would be told twice
    span = abs(request.times[1] - request.times[0])
    return request.keep > 0 and request.first_step is not None and span <= request.first_step
