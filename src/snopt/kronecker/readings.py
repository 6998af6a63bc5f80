"""Readings: inputs and output gradients of one matrix of a layer in a call.

A *reading* of a matrix W is its name, and rows z and g with

    dL/dW = Σ g zᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from snopt.base.backprop import backpropagate
from snopt.kronecker.calls import Gradients

__all__ = ["CannotRead", "Reading", "pulled"]

#: Name of the matrix, its inputs z, the gradients g of its products.
Reading: TypeAlias = tuple[str, Tensor, Tensor]


class CannotRead(Exception):
    """A call that cannot be read; the message says why."""


def pulled(outputs: Sequence[Tensor], gradients: Gradients, at: list[Tensor]) -> list[Tensor]:
    """Pull gradients of outputs back to the tensors ``at``; zero for unused tensors."""
    pairs = [(o, g.to(o.dtype)) for o, g in zip(outputs, gradients, strict=True) if g is not None]
    found = backpropagate([output for output, _ in pairs], at, [g for _, g in pairs])
    return [torch.zeros_like(t) if g is None else g for t, g in zip(at, found, strict=True)]
