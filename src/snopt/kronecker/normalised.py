"""Weight- and spectral-normalised layers: the preconditioned matrix and its factors.

The weight W of such a layer is computed from a trained matrix V of the same shape:

    weight_norm     W_i = s_i V_i,   s_i = g_i / ‖V_i‖     (row by row)
    spectral_norm   W = s V,         s = 1 / σ(V)

Then dL/dV = s (dL/dW - P), where P removes the part of the gradient that only changes the norm. P
is neglected, because the curvature of V would not be a Kronecker product otherwise. The result is
the curvature of a plain layer whose output gradients are multiplied by s. The view covers V. The
optimizer's fallback trains g and the bias, whose gradients are not scaled by s.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

__all__ = ["is_normalised", "matrix_of", "row_scale"]


def _parametrization(module: nn.Module) -> tuple[parametrize.ParametrizationList, nn.Module] | None:
    """Return the weight's only parametrisation, and its list; None if there is none or several."""
    if not parametrize.is_parametrized(module, "weight"):
        return None
    found: parametrize.ParametrizationList = module.parametrizations["weight"]  # type: ignore[index, assignment]
    return (found, found[0]) if len(found) == 1 else None


def matrix_of(module: nn.Module) -> nn.Parameter | None:
    """Return the trained matrix of a layer: its weight, or the matrix that the weight derives from.

    Returns:
        None if the weight is computed in another way than by ``weight_norm(dim=0)`` or
        ``spectral_norm(dim=0)`` of :mod:`torch.nn.utils.parametrizations`.

    Example:
        >>> layer = parametrizations.weight_norm(nn.Linear(3, 2))
        >>> matrix_of(layer) is layer.parametrizations.weight.original1
        True
    """
    own = module._parameters.get("weight")
    found = None if own is not None else _parametrization(module)
    if found is None:
        return own
    weights, kind = found
    if isinstance(kind, parametrizations._WeightNorm) and kind.dim == 0:
        return weights.original1  # type: ignore[return-value]
    if isinstance(kind, parametrizations._SpectralNorm) and kind.dim == 0:
        return weights.original  # type: ignore[return-value]
    return None


def is_normalised(module: nn.Module) -> bool:
    """Return whether a layer's weight is computed from its trained matrix."""
    return module._parameters.get("weight") is None and matrix_of(module) is not None


@torch.no_grad()
def row_scale(module: nn.Module) -> Tensor | None:
    """Return s of a normalised layer, one number per output; None for a plain layer.

    Example:
        >>> layer = parametrizations.weight_norm(nn.Linear(3, 2))
        >>> layer.parametrizations.weight.original0.data *= 2
        >>> row_scale(layer)
        tensor([2., 2.])
    """
    found = _parametrization(module) if is_normalised(module) else None
    if found is None:
        return None
    weights, kind = found
    V = matrix_of(module)
    assert V is not None
    if isinstance(kind, parametrizations._WeightNorm):
        g: Tensor = weights.original0  # type: ignore[assignment]
        return (g / torch.norm_except_dim(V, 2, 0)).flatten()
    # Read the buffers, because reading the weight would advance the power iteration.
    sigma = torch.dot(kind._u, V.flatten(1) @ kind._v)  # type: ignore[arg-type, operator]
    return (1 / sigma).expand(V.shape[0])
