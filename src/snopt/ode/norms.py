r"""Norms of the error estimate.

The error ratio of a step is the norm of
:math:`e / (\mathrm{atol} + \mathrm{rtol} \max(|x|, |x_1|))`; a step is accepted if it is at most
one. The norm of a tensor is its root mean square. The norm of a tuple is the largest root mean
square of its tensors, so a small tensor (a log-density, an energy) still counts beside a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snopt.base.packing import Packing
from snopt.base.types import State, leaves

Norm = Callable[[Tensor], Tensor]


def rms(x: Tensor) -> Tensor:
    r"""Return the root mean square :math:`\|x\|_2 / \sqrt{n}`.

    Example:
        >>> rms(torch.tensor([3.0, -3.0]))
        tensor(3.)
    """
    norm: Tensor = torch.linalg.vector_norm(x) * x.numel() ** -0.5
    return norm


@dataclass(frozen=True)
class Seminorm:
    """A norm of a tuple state that ignores all but its first tensors.

    The ignored tensors do not influence the step size. This suits quantities on which the field
    does not depend, such as running costs.

    Attributes:
        keep: number of tensors, from the left, that count.

    Example:
        >>> x = (torch.tensor([3.0]), torch.tensor([1e9]))
        >>> Seminorm(keep=1)(x)
        tensor(3.)
    """

    keep: int = 1

    def __call__(self, state: State) -> Tensor:
        """Return the largest root mean square of the tensors that count."""
        parts = list(leaves(state))[: self.keep]
        return torch.stack([rms(part) for part in parts]).max()


def norm_for(packing: Packing, norm: Callable[[State], Tensor] | None) -> Norm:
    """Return a norm of packed states: the user's norm of nested states, or the default.

    Example:
        >>> packing = Packing.of((torch.zeros(2), torch.zeros(1)))
        >>> norm_for(packing, None)(torch.tensor([1.0, 1.0, 5.0]))
        tensor(5.)
    """
    if norm is not None:
        return lambda x: norm(packing.unpack(x))
    if packing.single:
        return rms
    return lambda x: torch.stack([rms(part) for part in x.split(packing.sizes)]).max()
