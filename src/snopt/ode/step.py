"""One explicit Runge-Kutta step, and where its stages are kept.

Two stores have one interface. :class:`StageBuffer` is the hot path: stages are rows of one
matrix, so that ``x + h * sum_j a_j k_j`` is a single matrix-vector product. :class:`StageList`
is made of ordinary tensor operations, for autograd and for the compiler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from snopt.base.types import TensorField
from snopt.ode.norms import Norm
from snopt.ode.tableau import Tableau, TableauTensors, tensors


class Stages(Protocol):
    """Stages ``k_1, k_2, ...`` of one step."""

    def write(self, i: int, k: Tensor) -> None:
        """Keep stage ``i``."""

    def read(self, i: int) -> Tensor:
        """Stage ``i``."""

    def combine(self, x: Tensor | None, weights: Tensor, h: float) -> Tensor:
        """``x + h * sum_j weights[j] * k_j`` over the first ``len(weights)`` stages."""


class StageBuffer:
    """Stages as rows of one matrix; not differentiable."""

    def __init__(self, rows: int, like: Tensor) -> None:
        """Allocate room for the stages of a state.

        Args:
            rows: How many stages.
            like: A state.
        """
        self.shape = like.shape
        self.matrix = torch.empty(rows, like.numel(), dtype=like.dtype, device=like.device)
        self.views = self.matrix.view(rows, *like.shape).unbind(0)
        self.columns = self.matrix.t()
        self.empty = self.matrix.new_empty(0)

    def write(self, i: int, k: Tensor) -> None:
        """Copy stage ``i`` into its row.

        Args:
            i: Stage number, from 0.
            k: The stage.
        """
        self.views[i].copy_(k)

    def read(self, i: int) -> Tensor:
        """The row of stage ``i`` in the state's shape.

        Args:
            i: Stage number, from 0.

        Returns:
            A view; the next step overwrites it.
        """
        return self.views[i]

    def combine(self, x: Tensor | None, weights: Tensor, h: float, start: int = 0) -> Tensor:
        """One matrix-vector product for the weighted sum of stages.

        Args:
            x: What to add to, or None for zero.
            weights: Weights of the stages from ``start`` on.
            h: Factor of the sum.
            start: First stage that takes part.

        Returns:
            ``x + h * sum_j weights[j] * k_(start + j)`` in the state's shape.
        """
        n = weights.shape[0]
        columns = self.columns[:, start : start + n]
        if x is None:
            return torch.addmv(self.columns[:, 0], columns, weights, beta=0, alpha=h).view(
                self.shape
            )
        return torch.addmv(x.reshape(-1), columns, weights, alpha=h).view(self.shape)


class StageList:
    """Stages as a list of tensors; differentiable and compilable."""

    def __init__(self) -> None:
        """Start with no stage."""
        self.items: list[Tensor] = []

    def write(self, i: int, k: Tensor) -> None:
        """Append stage ``i``, or put it in its place.

        Args:
            i: Stage number, from 0.
            k: The stage.
        """
        if i < len(self.items):
            self.items[i] = k
        else:
            self.items.append(k)

    def read(self, i: int) -> Tensor:
        """Stage ``i``.

        Args:
            i: Stage number, from 0.

        Returns:
            The tensor that was written.
        """
        return self.items[i]

    def combine(self, x: Tensor | None, weights: Tensor, h: float | Tensor) -> Tensor:
        """The weighted sum of stages, zeros skipped.

        Args:
            x: What to add to, or None for zero.
            weights: Weights of the first stages.
            h: Factor of the sum.

        Returns:
            ``x + h * sum_j weights[j] * k_j``.
        """
        return self.weighted(x, weights.tolist(), h)

    def weighted(self, x: Tensor | None, weights: tuple[float, ...] | list[float],
                 h: float | Tensor) -> Tensor:  # fmt: skip
        """:meth:`combine` with the weights as plain numbers.

        Args:
            x: What to add to, or None for zero.
            weights: Weights of the first stages.
            h: Factor of the sum.

        Returns:
            ``x + h * sum_j weights[j] * k_j``.
        """
        total: Tensor | None = None
        for weight, k in zip(weights, self.items, strict=False):
            if weight != 0.0:
                total = weight * k if total is None else torch.add(total, k, alpha=weight)
        if total is None:
            return torch.zeros_like(self.items[0]) if x is None else x
        return h * total if x is None else x + h * total


def stage_times(rows: TableauTensors, t: float, h: float) -> tuple[Tensor, ...]:
    """The times ``t + c_i h`` as 0-d tensors, in two operations.

    Args:
        rows: The method's tensors.
        t: Start of the step.
        h: The step.

    Returns:
        One time a stage.
    """
    return torch.add(rows.c * h, t).unbind(0)


def fill(stages: Stages, tableau: Tableau, field: TensorField, times: tuple[Tensor, ...],
         h: float, x: Tensor, first: int, last: int) -> None:  # fmt: skip
    """Evaluate the stages ``first <= i < last``.

    Args:
        stages: Where the earlier stages are and the new ones go.
        tableau: The method.
        field: The field.
        times: Stage times.
        h: The step.
        x: State at the start of the step.
        first: First stage to evaluate.
        last: One past the last.
    """
    rows = tensors(tableau, x.dtype, x.device).a
    for i in range(first, last):
        stages.write(i, field(times[i], stages.combine(x, rows[i], h) if i else x))


def combine_errors(norms: list[float]) -> float:
    r"""Join the error norms of a method with one or two estimates.

    With two estimates :math:`r_5, r_3` (dopri8) the joint one is
    :math:`r_5^2 / \sqrt{r_5^2 + 0.01\, r_3^2}`, as in DOP853.

    Args:
        norms: One norm an error row.

    Returns:
        The error ratio.

    Example:
        >>> combine_errors([0.5])
        0.5
    """
    if len(norms) == 1:
        return norms[0]
    fine, coarse = norms
    if fine == 0.0:
        return 0.0
    return fine * fine / math.sqrt(fine * fine + 0.01 * coarse * coarse)


@dataclass(frozen=True)
class Tolerance:
    """What error a step may make.

    Attributes:
        rtol: Relative tolerance, a number or a tensor that broadcasts with the packed state.
        atol: Absolute tolerance, likewise.
        norm: Norm of the scaled error.
    """

    rtol: float | Tensor
    atol: float | Tensor
    norm: Norm

    def scale(self, x: Tensor, x1: Tensor) -> Tensor:
        """``atol + rtol * max(|x|, |x1|)``.

        Args:
            x: State before the step.
            x1: State after it.

        Returns:
            The scale of the error, entry by entry.
        """
        size = torch.maximum(x.abs(), x1.abs())
        return size.mul_(self.rtol).add_(self.atol)
