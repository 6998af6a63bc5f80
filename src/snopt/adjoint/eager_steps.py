"""Steps of the checkpointed adjoint, run eagerly stage by stage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.adjoint.pullback import GradientSum, StageListener, StepPullback, TapedStage, tape
from snopt.adjoint.request import Request
from snopt.base.isolation import RandomState
from snopt.base.types import TensorField
from snopt.ode.runge_kutta import RungeKutta


class Tape:
    """A field that keeps the tape of each evaluation, or the random state before it.

    Attributes:
        armed: whether tapes are kept.
        stages: the evaluations of the current step, in the order of its stages.
    """

    def __init__(self, field: TensorField, device: torch.device, armed: bool) -> None:
        self._field, self._device, self.armed = field, device, armed
        self.stages: list[TapedStage | RandomState] = []

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field, and keep its tape or the random state."""
        if not self.armed:
            self.stages.append(RandomState(self._device))
            return self._field(t, x)
        stage = tape(self._field, t, x)
        self.stages.append(stage)
        return stage[1].detach()


class TapingRungeKutta(RungeKutta):
    """A Runge-Kutta stepper that keeps the tapes of the last steps."""

    def __init__(self, request: Request, x0: Tensor) -> None:
        settings = request.settings
        assert settings.tableau is not None
        tolerance = settings.tolerance(request.packing) if settings.adaptive else None
        # A bound method as field would be a reference cycle that keeps all tapes alive.
        self._tape = Tape(request.field, x0.device, armed=request.keep > 0)
        super().__init__(settings.tableau, self._tape, x0, tolerance)
        self._request = request

    def start(self, t: float, x: Tensor) -> None:
        """Start at ``(t, x)`` and forget all slopes and tapes."""
        self._tape.stages = []
        super().start(t, x)

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Attempt a step, and keep its tape if it is one of the last steps."""
        # Remove what a first-step guess or a rejected attempt left after the first slope.
        del self._tape.stages[1:]
        self._tape.armed = self._request.tapes(t, h)
        return super().attempt(t, h, x)

    def accept(self) -> None:
        """Use the end slope, if it is known, as the first slope of the next step."""
        end = self.tableau.stages
        self._tape.stages = self._tape.stages[end : end + 1]
        super().accept()

    def tape(self) -> list[TapedStage | RandomState]:
        """Return, per stage of the last attempt, its tape or the random state before it."""
        return self._tape.stages


class EagerSteps:
    """Runs and pulls back steps stage by stage."""

    repeats = True

    def stepper(self, request: Request, x0: Tensor) -> TapingRungeKutta:
        """Return a stepper for one solve."""
        return TapingRungeKutta(request, x0)

    def pull(self, step: StepPullback, cotangent: Tensor, inside: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None) -> Tensor:  # fmt: skip
        """Pull back through a step as :meth:`StepPullback.pull` does."""
        return step.pull(cotangent, inside, gradient, on_stage)


EAGER = EagerSteps()
