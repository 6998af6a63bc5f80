"""Types that every package uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: A state: a tensor, or a (nested) tuple of tensors with the same dtype and device.
State: TypeAlias = Any

#: The user's field ``F(t, x)``. ``t`` is a 0-d tensor.
Field: TypeAlias = Callable[[Tensor, State], State]

#: ``F(t, x)`` after packing: one tensor in, one tensor of the same shape out.
TensorField: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def leaves(state: State) -> Iterator[Tensor]:
    """Yield the tensors of a nested tuple or list from left to right.

    Example:
        >>> a, b = torch.zeros(2), torch.ones(3)
        >>> [leaf.numel() for leaf in leaves((a, (b,)))]
        [2, 3]
    """
    if isinstance(state, Tensor):
        yield state
    else:
        for part in state:
            yield from leaves(part)


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of times for a state of ``dtype``: its real counterpart if complex.

    Example:
        >>> real_dtype(torch.complex64)
        torch.float32
    """
    return dtype.to_real() if dtype.is_complex else dtype


def time_tensor(t: float, like: Tensor) -> Tensor:
    """Return a time as the 0-d tensor that a field on states such as ``like`` receives."""
    # Unlike torch.tensor, torch.full does not make the host wait for the device.
    return torch.full((), t, dtype=real_dtype(like.dtype), device=like.device)
