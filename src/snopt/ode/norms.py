r"""Norms that decide whether a step is good enough.

The error ratio of a step is the norm of
:math:`e / (\mathrm{atol} + \mathrm{rtol} \max(|x|, |x_1|))`; a step is accepted when it is
at most one. A lone tensor is measured by its root mean square; a tuple by the largest of its
parts' root mean squares, so that a small part (a log-density, an energy) is not drowned by a
large one.
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
    r"""Root mean square :math:`\|x\|_2 / \sqrt{n}`.

    Args:
        x: Any tensor.

    Returns:
        A 0-d real tensor.

    Example:
        >>> rms(torch.tensor([3.0, -3.0]))
        tensor(3.)
    """
    norm: Tensor = torch.linalg.vector_norm(x) * x.numel() ** -0.5
    return norm


@dataclass(frozen=True)
class Seminorm:
    """A norm of a tuple state that looks at its first parts only.

    The parts that are left out are integrated with whatever steps the others ask for: right
    for quantities that feed back into nothing, such as running costs.

    Attributes:
        keep: How many leaves, from the left, are measured.

    Example:
        >>> x = (torch.tensor([3.0]), torch.tensor([1e9]))
        >>> Seminorm(keep=1)(x)
        tensor(3.)
    """

    keep: int = 1

    def __call__(self, state: State) -> Tensor:
        """The largest root mean square among the kept parts.

        Args:
            state: A nested state.

        Returns:
            A 0-d tensor.
        """
        parts = list(leaves(state))[: self.keep]
        return torch.stack([rms(part) for part in parts]).max()


def norm_for(packing: Packing, norm: Callable[[State], Tensor] | None) -> Norm:
    """The norm of a packed state.

    Args:
        packing: How the user's state is packed.
        norm: The user's norm of a nested state, or None for the default.

    Returns:
        A norm of packed tensors.

    Example:
        >>> packing = Packing.of((torch.zeros(2), torch.zeros(1)))
        >>> norm_for(packing, None)(torch.tensor([1.0, 1.0, 5.0]))
        tensor(5.)
    """
    if norm is not None:
        chosen = norm
        return lambda x: chosen(packing.unpack(x))
    if packing.single:
        return rms
    sizes = packing.sizes
    return lambda x: torch.stack([rms(part) for part in x.split(sizes)]).max()
