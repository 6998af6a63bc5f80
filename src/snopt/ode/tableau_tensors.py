"""A method's coefficients as tensors, made once for every dtype and device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from snopt.ode.tableau import Row, Tableau


@dataclass(frozen=True)
class TableauTensors:
    """A tableau's rows as tensors on one device, made once.

    Attributes:
        c: All stage times.
        a: Row ``i`` of the coefficients, as a vector of ``i`` entries.
        errors: Error weights.
        tails: ``tails[n][i]`` is ``(a[i+1][i], ..., a[n-1][i], b[i])`` for a step of which
            ``n`` stages count: what multiplies later cotangents in the pull-back.
    """

    c: Tensor
    a: tuple[Tensor, ...]
    errors: tuple[Tensor, ...]
    tails: dict[int, tuple[Tensor, ...]]


@lru_cache(maxsize=64)
def tensors(tableau: Tableau, dtype: torch.dtype, device: torch.device) -> TableauTensors:
    """The rows of a tableau as tensors.

    Args:
        tableau: The method.
        dtype: The state's dtype.
        device: The state's device.

    Returns:
        The rows, cached.
    """

    def row(values: Row) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    def tail(n: int, i: int) -> Tensor:
        later = tuple(tableau.a[j][i] for j in range(i + 1, n))
        return row((*later, tableau.b[i] if i < tableau.stages else 0.0))

    total = len(tableau.c)
    return TableauTensors(
        c=torch.tensor(
            tableau.c, dtype=dtype.to_real() if dtype.is_complex else dtype, device=device
        ),
        a=tuple(row(values) for values in tableau.a),
        errors=tuple(row(values) for values in tableau.errors),
        tails={n: tuple(tail(n, i) for i in range(n)) for n in (tableau.stages, total)},
    )
