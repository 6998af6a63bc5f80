"""Gradients with less overhead than ``torch.autograd.grad``.

That function calls the same engine after checks of its arguments. They take a sixth of the time of
a small field, and the first call imports the compiler's symbolic algebra, which takes 36 MB.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

_run_backward = torch.autograd.Variable._execution_engine.run_backward


def backpropagate(
    values: Sequence[Tensor],
    inputs: Sequence[Tensor | GradientEdge],
    cotangents: Sequence[Tensor],
    *,
    keep: bool = False,
) -> tuple[Tensor | None, ...]:
    """Pull cotangents of ``values`` back to ``inputs``; None for an unused input.

    Args:
        values: tensors with a tape.
        inputs: the tensors, or edges of the graph, to compute gradients for.
        cotangents: one tensor per value, of its shape and dtype.
        keep: retain the tape.

    Example:
        >>> a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        >>> backpropagate([3 * a], [a, b], [torch.tensor([1.0, 2.0])])
        (tensor([3., 6.]), None)
    """
    if not inputs:  # the engine would accumulate into the leaves
        return ()
    found: tuple[Tensor | None, ...] = _run_backward(
        tuple(values), tuple(cotangents), keep, False, tuple(inputs),
        allow_unreachable=True, accumulate_grad=False,
    )  # fmt: skip
    return found
