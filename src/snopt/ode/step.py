"""Stages of one explicit Runge-Kutta step.

Two stores have one interface. :class:`StageBuffer` is the hot path: stages are rows of one
matrix, so ``x + h * sum_j a_j k_j`` is a single matrix-vector product. :class:`StageList`
uses ordinary tensor operations, for autograd and for the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from snopt.base.types import TensorField
from snopt.ode.interpolation import Row
from snopt.ode.norms import Norm
from snopt.ode.tableau import TableauTensors, Weights


class Stages(Protocol):
    """Stages ``k_1, k_2, ...`` of one step."""

    def write(self, i: int, k: Tensor) -> None:
        """Store stage ``i``, counted from 0."""

    def read(self, i: int) -> Tensor:
        """Return stage ``i``."""

    def combine(self, x: Tensor | None, weights: Weights, h: float) -> Tensor:
        """Return ``x + h * sum_j weights[j] * k_j`` over the first ``len(weights)`` stages."""


class StageBuffer:
    """Stages as rows of one matrix; not differentiable."""

    def __init__(self, rows: int, like: Tensor) -> None:
        self.shape = like.shape
        self.matrix = torch.empty(rows, like.numel(), dtype=like.dtype, device=like.device)
        self.views = self.matrix.view(rows, *like.shape).unbind(0)
        self.columns = self.matrix.t()
        self._unread = self.matrix.select(0, 0)  # a summand of factor zero

    def write(self, i: int, k: Tensor) -> None:
        """Copy stage ``i`` into its row."""
        self.views[i].copy_(k)

    def read(self, i: int) -> Tensor:
        """Return a view of stage ``i``, which the next step overwrites."""
        return self.views[i]

    def combine(self, x: Tensor | None, weights: Weights, h: float, start: int = 0) -> Tensor:
        """Return the weighted sum of the stages from ``start`` on, as one product."""
        columns = self.columns[:, start : start + len(weights.row)]
        base, beta = (self._unread, 0) if x is None else (x.reshape(-1), 1)
        out = torch.addmv(base, columns, weights.tensor, beta=beta, alpha=h)
        return out.view(self.shape)


class StageList:
    """Stages as a list of tensors; differentiable and compilable."""

    def __init__(self, *items: Tensor) -> None:
        self.items = list(items)

    def write(self, i: int, k: Tensor) -> None:
        """Append stage ``i``, or replace it."""
        if i < len(self.items):
            self.items[i] = k
        else:
            self.items.append(k)

    def read(self, i: int) -> Tensor:
        """Return stage ``i``."""
        return self.items[i]

    def combine(self, x: Tensor | None, weights: Weights, h: float | Tensor) -> Tensor:
        """Return the weighted sum, skipping zeros."""
        return self.weighted(x, weights.row, h)

    def weighted(self, x: Tensor | None, weights: Sequence[float], h: float | Tensor) -> Tensor:
        """Return :meth:`combine` for plain numbers as weights."""
        total: Tensor | None = None
        for weight, k in zip(weights, self.items, strict=False):
            if weight != 0.0:
                total = weight * k if total is None else torch.add(total, k, alpha=weight)
        if total is None:
            return torch.zeros_like(self.items[0]) if x is None else x
        return h * total if x is None else x + h * total


def stage_times(rows: TableauTensors, t: float, h: float) -> tuple[Tensor, ...]:
    """Return the times ``t + c_i h`` of all stages as 0-d tensors, in two operations."""
    return torch.add(rows.c * h, t).unbind(0)


def fill(stages: Stages, rows: TableauTensors, field: TensorField, times: tuple[Tensor, ...],
         h: float, x: Tensor, first: int, last: int) -> None:  # fmt: skip
    """Evaluate the stages ``first <= i < last`` of a step from ``x``."""
    for i in range(first, last):
        stages.write(i, field(times[i], stages.combine(x, rows.a[i], h) if i else x))


def combine_errors(norms: Row) -> float:
    r"""Combine the error norms of a method with one or two estimates.

    With two estimates :math:`r_5, r_3` (dopri8) the joint one is
    :math:`r_5^2 / \sqrt{r_5^2 + 0.01\, r_3^2}`, as in DOP853.

    Example:
        >>> combine_errors((0.5,))
        0.5
    """
    if len(norms) == 1:
        return norms[0]
    fine, coarse = norms
    if fine == 0.0:
        return 0.0
    return fine * fine / math.sqrt(fine * fine + 0.01 * coarse * coarse)


def read_numbers(*values: Tensor | float) -> Row:
    """Return numbers from a device, with one transfer for all of them."""
    if len(values) == 1 or not isinstance(values[0], Tensor):
        return tuple(float(value) for value in values)
    return tuple(torch.stack(values).tolist())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Tolerance:
    """The error allowed per step.

    Attributes:
        rtol: relative tolerance, a number or a tensor that broadcasts with the packed state.
        atol: absolute tolerance, likewise.
        norm: norm of the scaled error.
    """

    rtol: float | Tensor
    atol: float | Tensor
    norm: Norm

    def scale(self, x: Tensor, x1: Tensor) -> Tensor:
        """Return ``atol + rtol * max(|x|, |x1|)`` for the states before and after a step."""
        size = torch.maximum(x.abs(), x1.abs())
        return size.mul_(self.rtol).add_(self.atol)
