"""Steps of the checkpointed adjoint as PyTorch runs them, stage by stage."""

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
    """A field that keeps autograd's tape of each evaluation, or the random state before it.

    Attributes:
        armed: Whether tapes are kept.
        stages: The evaluations of the current step, in the order of its stages.
    """

    def __init__(self, field: TensorField, device: torch.device, armed: bool) -> None:
        """Wrap a field.

        Args:
            field: The field on packed states.
            device: The state's device.
            armed: Whether to begin by keeping tapes.
        """
        self._field, self._device, self.armed = field, device, armed
        self.stages: list[TapedStage | RandomState] = []

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field.

        Args:
            t: Time.
            x: State.

        Returns:
            Its value, off the tape.
        """
        if not self.armed:
            self.stages.append(RandomState(self._device))
            return self._field(t, x)
        stage = tape(self._field, t, x)
        self.stages.append(stage)
        return stage[1].detach()


class TapingRungeKutta(RungeKutta):
    """Runge-Kutta that keeps the tape of the last steps."""

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
        self._tape = Tape(request.field, x0.device, armed=request.keep > 0)
        super().__init__(settings.tableau, self._tape, x0, tolerance)
        self._request = request

    def start(self, t: float, x: Tensor) -> None:
        """Begin anew, without slopes and without their tape.

        Args:
            t: The time.
            x: The state.
        """
        self._tape.stages = []
        super().start(t, x)

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try a step, on the tape if it is among the last.

        Args:
            t: Start of the step.
            h: Signed step.
            x: State at ``t``.

        Returns:
            The new state and the error ratio.
        """
        # The first slope stays; a guess, or an attempt that was rejected, left more.
        del self._tape.stages[1:]
        self._tape.armed = self._request.tapes(t, h)
        return super().attempt(t, h, x)

    def accept(self) -> None:
        """The end slope, if it was evaluated, opens the next step."""
        end = self.tableau.stages
        self._tape.stages = self._tape.stages[end : end + 1]
        super().accept()

    def tape(self) -> list[TapedStage | RandomState]:
        """Of each stage of the step tried last, its tape or the random state before it.

        Returns:
            The first slope, the stages, and what dense output needed besides.
        """
        return self._tape.stages


class EagerSteps:
    """Runs and pulls back steps stage by stage."""

    repeats = True

    def stepper(self, request: Request, x0: Tensor) -> TapingRungeKutta:
        """A stepper for one solve.

        Args:
            request: The solve.
            x0: Packed initial state.

        Returns:
            The stepper.
        """
        return TapingRungeKutta(request, x0)

    def pull(self, step: StepPullback, cotangent: Tensor, inside: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None) -> Tensor:  # fmt: skip
        """Pull back through a step.

        Args:
            step: The step.
            cotangent: Cotangent of the state at its end.
            inside: ``(theta, cotangent)`` of outputs strictly inside.
            gradient: Where parameter gradients are added.
            on_stage: Told of each stage's input and cotangent.

        Returns:
            Cotangent of the state at its start.
        """
        return step.pull(cotangent, inside, gradient, on_stage)


EAGER = EagerSteps()
