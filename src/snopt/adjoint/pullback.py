r"""Pulling a cotangent back through one Runge-Kutta step, stage by stage.

A step is linear in its stages, :math:`x_1 = x + h \sum_i b_i k_i`, and so is dense output,
:math:`x(\theta) = x + h \sum_i P_i(\theta) k_i`. With cotangents :math:`\lambda_1` of
:math:`x_1` and :math:`g` of outputs inside the step, the cotangent of stage :math:`i` is

.. math::
    \kappa_i = h \Bigl( b_i \lambda_1 + \sum P_i(\theta)\, g + \sum_{j>i} a_{ji}\, \xi_j \Bigr),
    \qquad \xi_i = F_x(X_i)^\top \kappa_i ,

and :math:`\lambda_0 = \lambda_1 + \sum g + \sum_i \xi_i`,
:math:`Q_u \mathrel{+}= \sum_i F_u(X_i)^\top \kappa_i`: the exact gradient of the discretised
solution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from snopt.base.backprop import backpropagate
from snopt.base.context import Context
from snopt.base.isolation import Again, RandomState
from snopt.base.types import TensorField
from snopt.ode.step import StageBuffer, stage_times
from snopt.ode.tableau import Tableau, TableauTensors, tensors

#: A stage on autograd's tape: its input (a leaf) and its output.
TapedStage = tuple[Tensor, Tensor]


@dataclass
class StepTape:
    """What an eager step keeps for its pull-back.

    Attributes:
        stages: per stage its tape, or the random state before it, or None if it draws no random
            numbers.
        slopes: values of the stages as rows, or None. With them the stages without a tape can be
            evaluated again one by one, so only one new tape exists at a time.
    """

    stages: list[TapedStage | RandomState | None]
    slopes: Tensor | None = None

    def trim(self, tapes: int, stages: int) -> bool:
        """Free all but the last tapes of the first ``stages``; return whether anything is left."""
        if tapes == 0:
            self.stages = []
        self.stages[: stages - tapes] = [None] * len(self.stages[: stages - tapes])
        return tapes > 0 or self.slopes is not None


#: Called with the stage number, its input and its cotangent.
StageListener = Callable[[int, Tensor, Tensor], None]


@dataclass
class GradientSum:
    """A sum of parameter gradients.

    Attributes:
        total: one sum per parameter; None until something was added.
    """

    params: Sequence[Tensor]
    total: list[Tensor | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = [None] * len(self.params)

    def add(self, gradients: Sequence[Tensor | None], weight: float = 1.0) -> None:
        """Add ``weight`` times one gradient per parameter; None counts as zero."""
        into: list[Tensor] = []
        new: list[Tensor] = []
        for i, gradient in enumerate(gradients):
            if gradient is None:
                continue
            old = self.total[i]
            if old is None:
                # Autograd may return a tensor that it also keeps elsewhere, so this is a copy.
                self.total[i] = gradient * weight if weight != 1.0 else gradient.clone()
            else:
                into.append(old)
                new.append(gradient)
        if into:
            torch._foreach_add_(into, new, alpha=weight)


def tape(field: TensorField, t: Tensor, x: Tensor) -> TapedStage:
    """Return a leaf with the value of ``x``, and the field there with its tape."""
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        return leaf, field(t, leaf)


def vjp(stage: TapedStage, cotangent: Tensor, params: Sequence[Tensor],
        *, keep: bool = False) -> tuple[Tensor | None, Sequence[Tensor | None]]:  # fmt: skip
    """Pull a cotangent back through one taped evaluation; ``keep`` retains the tape.

    Returns:
        cotangents of the state (None if the field does not depend on it) and of the parameters.
    """
    leaf, value = stage
    if not value.requires_grad:
        return None, [None] * len(params)
    first, *rest = backpropagate((value,), (leaf, *params), (cotangent.view_as(value),), keep=keep)
    return first, rest


@dataclass
class StepPullback:
    """The signed step ``h`` from ``(t, x)``, to pull cotangents back through.

    Attributes:
        kept: data of the step from the forward pass; for eager steps a :class:`StepTape`.
        shared: whether the previous step also pulls back through the first stage, its end slope.
        end: the field at the end of the step, if its tape was kept and nothing else needs it.
        context: the context of the call, for runners that call the field themselves.
    """

    tableau: Tableau
    field: Again
    params: Sequence[Tensor]
    t: float
    h: float
    x: Tensor
    kept: Any = None
    shared: bool = False
    end: TapedStage | None = None
    context: Context = None

    def __post_init__(self) -> None:
        self.have = 0
        self.evaluations = 0
        self.taped: list[TapedStage | None] = []

    @cached_property
    def rows(self) -> TableauTensors:
        """Coefficients of the method as tensors."""
        return tensors(self.tableau, self.x.dtype, self.x.device)

    @cached_property
    def times(self) -> tuple[Tensor, ...]:
        """Times of the stages."""
        return stage_times(self.rows, self.t, self.h)

    @cached_property
    def stages(self) -> StageBuffer:
        """Values of the stages; not filled if all tapes were kept."""
        stages = StageBuffer(len(self.tableau.c), self.x)
        for i, stage in enumerate(self.taped):
            if stage is not None:
                stages.write(i, stage[1].detach())
        return stages

    def rerun(self, count: int) -> None:
        """Evaluate the first ``count`` stages with their tapes, unless they were kept.

        A stage of which only the value was kept has no tape yet.
        """
        slopes = () if self.kept is None or self.kept.slopes is None else self.kept.slopes
        for i in range(self.have, count):
            old = self._kept(i)
            if not isinstance(old, tuple) and i < len(slopes):
                self.stages.write(i, slopes[i])
                self.taped.append(None)
                continue
            stage = old if isinstance(old, tuple) else self._evaluated(i)
            self.taped.append(stage)
            if "stages" in vars(self):
                self.stages.write(i, stage[1].detach())
        self.have = max(self.have, count)

    def _kept(self, i: int) -> TapedStage | RandomState | None:
        stages = [] if self.kept is None else self.kept.stages
        return stages[i] if i < len(stages) else None

    def _evaluated(self, i: int) -> TapedStage:
        """Evaluate stage ``i`` again, from the values of earlier stages."""
        x = self.stages.combine(self.x, self.rows.a[i], self.h) if i else self.x
        old = self._kept(i)
        self.evaluations += 1
        return tape(
            self.field.at(old) if isinstance(old, RandomState) else self.field, self.times[i], x
        )

    def pull(self, cotangent: Tensor, outputs: Sequence[tuple[float, Tensor]],
             gradient: GradientSum, on_stage: StageListener | None = None) -> Tensor:  # fmt: skip
        """Return the cotangent of the state at the start.

        Args:
            cotangent: cotangent of the state at the end.
            outputs: ``(theta, cotangent)`` of outputs strictly inside the step.
            gradient: the sum to which parameter gradients are added.
            on_stage: receives the number, input and cotangent of each stage.
        """
        inside = [(self.tableau.output_weights(theta), g) for theta, g in outputs]
        count = len(inside[0][0]) if inside else self.tableau.stages
        self.rerun(count)
        tails = self.rows.tails[count]
        # Row i holds the state cotangent of stage i; the last row is that of the end state.
        back = StageBuffer(count + 1, self.x)
        back.write(count, cotangent)
        for i in reversed(range(count)):
            kappa = back.combine(None, tails[i], self.h, start=i + 1)
            for weights, g in inside:
                kappa = kappa.add_(g, alpha=self.h * weights[i])
            stage = self.taped[i] or self._evaluated(i)
            if on_stage is not None:
                on_stage(i, stage[0].detach(), kappa)
            xi, rest = vjp(stage, kappa, self.params, keep=self.shared and i == 0)
            del stage
            back.views[i].zero_() if xi is None else back.write(i, xi)
            gradient.add(rest)
        total = back.matrix.sum(0).view(self.x.shape)
        for _, g in outputs:
            total += g
        return total
