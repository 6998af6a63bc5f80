"""Steps of the checkpointed adjoint, run eagerly stage by stage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.adjoint.pullback import (
    GradientSum,
    StageListener,
    StepPullback,
    StepTape,
    TapedStage,
    tape,
)
from snopt.adjoint.request import Request
from snopt.base.isolation import RandomState
from snopt.base.types import TensorField
from snopt.ode.runge_kutta import RungeKutta


class Tape:
    """A field that keeps the tape of each evaluation, or the random state before it.

    Attributes:
        wanted: numbers of the stages whose tape is kept.
        stages: the evaluations of the current step, in the order of its stages.
    """

    def __init__(self, field: TensorField, device: torch.device, wanted: range) -> None:
        self._field, self._device, self.wanted = field, device, wanted
        self.stages: list[TapedStage | RandomState | None] = []

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field, and keep its tape or the random state."""
        if len(self.stages) not in self.wanted:
            self.stages.append(RandomState(self._device))
            return self._field(t, x)
        stage = tape(self._field, t, x)
        self.stages.append(stage)
        return stage[1]


class TapingRungeKutta(RungeKutta):
    """A Runge-Kutta stepper that keeps the tapes of the last stages."""

    def __init__(self, request: Request, x0: Tensor) -> None:
        settings = request.settings
        assert settings.tableau is not None
        tolerance = settings.tolerance(request.packing) if settings.adaptive else None
        # A bound method as field would be a reference cycle that keeps all tapes alive.
        self._tape = Tape(request.field, x0.device, range(min(1, request.allowed.tapes)))
        super().__init__(settings.tableau, self._tape, x0, tolerance)
        self._request = request
        # The slope at the end is differentiated by observers, and for outputs inside a step.
        self._ends = request.observer is not None or len(request.times) > 2
        self._lean: list[StepTape] = []
        self._slope_bytes = request.allowed.slope_bytes

    def start(self, t: float, x: Tensor) -> None:
        """Start at ``(t, x)`` and forget all slopes and tapes."""
        self._tape.stages = []
        super().start(t, x)

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Attempt a step, and keep the tapes of those stages that are among the last."""
        # Remove what a first-step guess or a rejected attempt left after the first slope.
        del self._tape.stages[1:]
        tapes, stages = self._request.allowed.tapes, self.tableau.stages
        left = stages * self._request.steps_left(t, h)
        last = max(left, len(self.tableau.c)) if self._ends else left
        self._tape.wanted = range(left - tapes, last if tapes else 0)
        return super().attempt(t, h, x)

    def accept(self) -> None:
        """Use the end slope, if it is known, as the first slope of the next step."""
        end = self.tableau.stages
        self._tape.stages = self._tape.stages[end : end + 1]
        super().accept()

    def tape(self) -> StepTape:
        """Return what the last attempt keeps for its pull-back."""
        kept, count = StepTape(self._tape.stages), self.tableau.stages
        taped = all(isinstance(stage, tuple) for stage in kept.stages[:count])
        if not taped and self._slope_bytes >= 0:
            self._keep_slopes(kept)
        return kept

    def _keep_slopes(self, kept: StepTape) -> None:
        """Keep the values of the stages, or free those of all steps if they take too much."""
        slopes = [self.stages.read(i) for i in range(self.tableau.stages)]
        self._slope_bytes -= sum(slope.nbytes for slope in slopes)
        if self._slope_bytes >= 0:
            kept.slopes = torch.stack(slopes)
            self._lean.append(kept)
        else:
            for other in self._lean:
                other.slopes = None
            self._lean.clear()

    def trim(self, kept: StepTape, tapes: int) -> StepTape | None:
        """Free all but the last tapes of a step, which draws no random numbers."""
        return kept if kept.trim(tapes, self.tableau.stages) else None


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
