"""The few types that every layer speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: What a user integrates: a tensor, or a (nested) tuple of tensors of one dtype and device.
State: TypeAlias = Any

#: ``F(t, x)`` as the user writes it. ``t`` is a 0-d tensor.
Field: TypeAlias = Callable[[Tensor, State], State]

#: ``F(t, x)`` after packing: one tensor in, one tensor of the same shape out.
TensorField: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def leaves(state: State) -> Iterator[Tensor]:
    """Walk the tensors of a nested state from left to right.

    Args:
        state: A tensor or a nested tuple or list of tensors.

    Yields:
        Each tensor.

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
    """The dtype in which times are handed to a field whose state has ``dtype``.

    Args:
        dtype: The state's dtype.

    Returns:
        ``dtype`` itself, or the dtype of its real part when it is complex.

    Example:
        >>> real_dtype(torch.complex64)
        torch.float32
    """
    return dtype.to_real() if dtype.is_complex else dtype
