"""How long a step may be: KL clip and grafting."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["graft", "kl_scale"]


def kl_scale(
    directions: Sequence[Tensor], gradients: Sequence[Tensor], *, lr: float, clip: float
) -> float:
    """Shorten all directions together so that the model's outputs move by a bounded amount.

        ν = min(1, √(κ / (η² Σ |δθ · g|)))

    For a direction δθ = F⁻¹ g the sum is δθᵀ F δθ, twice the Kullback-Leibler divergence that a
    step of length one makes (Ba, Grosse and Martens 2017).

    Args:
        directions: δθ of each layer.
        gradients: g of each layer.
        lr: η.
        clip: κ.

    Example:
        >>> kl_scale([torch.ones(4)], [torch.ones(4)], lr=1.0, clip=1.0)
        0.5
    """
    if not directions:
        return 1.0
    products = [(d * g).sum() for d, g in zip(directions, gradients, strict=True)]
    moved = lr**2 * float(torch.stack(products).sum().abs())
    return min(1.0, (clip / moved) ** 0.5) if moved > 0 else 1.0


def graft(direction: Tensor, magnitude: Tensor) -> Tensor:
    """Keep a direction and take the length of another update (Anil et al. 2020).

        δθ ← δθ ‖m‖ / ‖δθ‖

    Learning rates tuned for the method that gave ``magnitude`` then carry over.

    Args:
        direction: δθ.
        magnitude: m, an update of the other method, or its norm as a 0-d tensor.

    Example:
        >>> graft(torch.tensor([3.0, 4.0]), torch.tensor([10.0]))
        tensor([6., 8.])
    """
    norm = direction.norm()
    # A zero direction stays zero: 0 / 0 must not reach the parameters.
    return direction * torch.where(norm > 0, magnitude.norm() / norm, 0.0)
