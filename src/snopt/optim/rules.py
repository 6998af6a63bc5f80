"""The three update rules for a gradient in the eigenbasis.

``X`` is the gradient of one layer in the eigenbasis of its Kronecker factors. Each rule takes X and
its moments, and returns a direction (to subtract after rotating back) and the new moments. Nothing
is changed in place.
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

    The paper writes line 5 without the batch size N. The authors' code multiplies by N, and the
    published values of ε (0.03 to 0.1) belong to that scale: X is the gradient of a mean over N
    examples, so N X² estimates the second moment of one example's gradient, an eigenvalue of the
    Gauss-Newton matrix. ``batch_size=1`` gives the line as printed.

    Args:
        X: gradient in the eigenbasis, including γ θ of weight decay.
        S: S*, zero at the start.
        decay: α.
        damping: ε.
        batch_size: N.
        weight_decay: γ, which is also added to the curvature (Remark of Section 3.2).

    Example:
        >>> X, S = amortized(torch.tensor([2.0]), torch.zeros(1), decay=0.75, damping=1.0)
        >>> X, S
        (tensor([1.]), tensor([1.]))
    """
    S = decay * S + ((1 - decay) * batch_size) * X.square()
    return X / (S + (weight_decay + damping)), S


def adam(
    Xs: list[Tensor], squares: list[Tensor], *, step: int, decay: float, damping: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Adam's scaling in the coordinates of the eigenbasis, of several gradients.

        v ← β v + (1 - β) X²,          β = min(β₂, 1 - k^(-0.8))
        X ← X / (√v + ε),              X ← X / max(1, RMS(X))

    In the coordinates of the parameters this is Adam (Kingma and Ba 2015) without momentum. A
    diagonal scaling assumes uncorrelated coordinates, and the coordinates in the eigenbasis of the
    Kronecker factors are the least correlated ones. :func:`~snopt.optim.averaging.averaged_step_`
    replaces momentum.

    The decay of v increases with the number of steps, and a gradient that is large compared with v
    is scaled down as a whole; both are from Adafactor (Shazeer and Stern 2018). Without them, a
    gradient that grows again after it has nearly vanished would cause too long a step.

    Args:
        Xs: gradients in the eigenbasis, each by itself.
        squares: v of each.
        step: k, counted from 1, of all of them.
        decay: β₂, the largest decay.
        damping: ε.

    Example:
        >>> X, v = adam([torch.tensor([-3.0])], [torch.zeros(1)], step=1, decay=0.999, damping=0.0)
        >>> X, v
        ([tensor([-1.])], [tensor([9.])])
    """
    # One call for all tensors, because the time of small ones is that of the calls.
    weight = max(1 - decay, step**-0.8)
    new = torch._foreach_lerp(squares, torch._foreach_mul(Xs, Xs), weight)
    roots = torch._foreach_sqrt(new)
    torch._foreach_add_(roots, damping)
    scaled = torch._foreach_div(Xs, roots)
    means = [square.mean() for square in torch._foreach_mul(scaled, scaled)]
    torch._foreach_sqrt_(means)
    torch._foreach_clamp_min_(means, 1)
    return list(torch._foreach_div(scaled, means)), list(new)


def kronecker_eigenvalues(values: Sequence[Tensor]) -> Tensor:
    """Return the eigenvalues Σ_B ⊗ Σ_A of a Kronecker product, in the layout of the weights.

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

    With ε = γ = 0 it is line 10 of Algorithm 1. The left side of eq. ``tik-reg`` in the paper has a
    typo: Ā + B̄ should be Ā ⊗ B̄.

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
