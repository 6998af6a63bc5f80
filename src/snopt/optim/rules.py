"""What to do with a gradient once it is in the eigenbasis: three rules.

``X`` is the gradient of one layer in the eigenbasis of its Kronecker factors. Each rule takes it
and its own moments, and returns a direction (to be subtracted after rotating back) and the new
moments. Nothing is changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["adam", "amortized", "kronecker_eigenvalues", "tikhonov"]


def amortized(
    X: Tensor,
    S: Tensor,
    *,
    decay: float,
    damping: float,
    batch_size: int = 1,
    weight_decay: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Algorithm 2, lines 5 and 6: amortised second moment, Tikhonov damping.

        S* ← α S* + (1 - α) N X²
        X  ← X / (S* + γ + ε)

    The paper writes line 5 without N, the batch size. The authors' programs multiply by it, and
    the published ε (0.03 to 0.1) belong to that scale: X is the gradient of a mean over N
    examples, and N X² then estimates the second moment of one example's gradient, which is what
    the eigenvalues of the Gauss-Newton matrix are. ``batch_size=1`` gives the printed line.

    Args:
        X: gradient in the eigenbasis, weight decay's γ θ included.
        S: S*, zero at the start.
        decay: α.
        damping: ε.
        batch_size: N.
        weight_decay: γ, which the Remark of Section 3.2 adds to the curvature too.

    Example:
        >>> X, S = amortized(torch.tensor([2.0]), torch.zeros(1), decay=0.75, damping=1.0)
        >>> X, S
        (tensor([1.]), tensor([1.]))
    """
    S = decay * S + ((1 - decay) * batch_size) * X.square()
    return X / (S + (weight_decay + damping)), S


def adam(
    X: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    step: int,
    momentum: float,
    decay: float,
    damping: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Adam with bias correction, its coordinates those of the eigenbasis.

        m ← β₁ m + (1 - β₁) X,   v ← β₂ v + (1 - β₂) X²
        X ← (m / (1 - β₁ᵏ)) / (√(v / (1 - β₂ᵏ)) + ε)

    In the coordinates of the parameters this is Adam (Kingma and Ba 2015); in the eigenbasis of
    the Kronecker factors the coordinates are the least correlated ones, which is what Adam's
    diagonal scaling supposes.

    Args:
        X: gradient in the eigenbasis.
        mean: m.
        square: v.
        step: k, counted from 1.
        momentum: β₁.
        decay: β₂.
        damping: ε.

    Example:
        >>> zero = torch.zeros(1)
        >>> X, m, v = adam(
        ...     torch.tensor([-3.0]), zero, zero, step=1, momentum=0.9, decay=0.99, damping=0.0
        ... )
        >>> X
        tensor([-1.])
    """
    mean = torch.lerp(mean, X, 1 - momentum)
    square = torch.lerp(square, X.square(), 1 - decay)
    root = (square / (1 - decay**step)).sqrt_().add_(damping)
    return (mean / (1 - momentum**step)).div_(root), mean, square


def kronecker_eigenvalues(values: Sequence[Tensor]) -> Tensor:
    """Eigenvalues of a Kronecker product, laid out as the weights are: Σ_B ⊗ Σ_A.

    Args:
        values: eigenvalues of each mode's factor, each ``[groups, d]``.

    Example:
        >>> kronecker_eigenvalues([torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0]])])
        tensor([[[ 3.,  5.],
                 [ 6., 10.]]])
    """
    total = values[0]
    for mode in values[1:]:
        total = total[..., None] * mode.reshape(mode.shape[0], *[1] * (total.dim() - 1), -1)
    return total


def tikhonov(
    X: Tensor, values: Sequence[Tensor], *, damping: float, weight_decay: float = 0.0
) -> Tensor:
    """Invert the damped Kronecker product itself (eq. ``tik-reg``), without amortisation.

        X ← X / (Σ_A ⊗ Σ_B + γ + ε),    which is (Ā ⊗ B̄ + (γ + ε) I)⁻¹ in the eigenbasis.

    With ε = γ = 0 it is line 10 of Algorithm 1. The left side of eq. ``tik-reg`` in the paper
    has Ā + B̄ where Ā ⊗ B̄ is meant.

    Args:
        X: gradient in the eigenbasis.
        values: eigenvalues of each mode's factor; small negative ones count as zero.
        damping: ε.
        weight_decay: γ.

    Example:
        >>> tikhonov(torch.ones(1, 1), [torch.tensor([[3.0]])], damping=1.0)
        tensor([[0.2500]])
    """
    S = kronecker_eigenvalues([mode.clamp_min(0) for mode in values])
    return X / (S + (damping + weight_decay))
