"""The default rule for parameters that no Kronecker factor covers.

Recurrent cells, attention's projections, small embeddings and free matrices have no recorded
factors. Their basis comes from the gradients themselves, as in SOAP (Vyas et al. 2024): the
eigenvectors of averages of G Gᵀ and Gᵀ G. Vectors and very large matrices have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snopt.optim.eigh import robust_eigh
from snopt.optim.update import Hyper, change_basis, layer_directions

__all__ = ["gradient_direction", "matrix_shape"]

#: Weight of the old products when the next gradient's arrive.
AVERAGING = 0.95


def matrix_shape(param: Tensor, max_size: int) -> tuple[int, ...]:
    """Give the sizes of the modes that have a basis: none, or rows and columns.

    Args:
        param: the parameter.
        max_size: the largest factor.

    Example:
        >>> matrix_shape(torch.zeros(4, 3, 2), 2048), matrix_shape(torch.zeros(9), 2048)
        ((4, 6), ())
    """
    if param.dim() < 2 or param.numel() == 0:
        return ()
    shape = (param.shape[0], param.numel() // param.shape[0])
    return shape if max(shape) <= max_size and not param.is_complex() else ()


def gradient_direction(
    param: Tensor,
    state: dict[str, Any],
    hyper: Hyper,
    *,
    max_size: int,
    gap: Callable[[int], int],
) -> Tensor:
    """Direction of one parameter, to be subtracted; its moments and basis are updated.

    Args:
        param: a parameter with a gradient.
        state: its state; everything of this function is under ``"own"``.
        hyper: β₂ and ε.
        max_size: the largest factor.
        gap: steps from one refresh of the basis to the next, from the steps made so far.
    """
    assert param.grad is not None
    gradient = torch.view_as_real(param.grad) if param.is_complex() else param.grad
    shape = matrix_shape(param, max_size)
    G = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    G = G.reshape(1, *shape) if shape else G.reshape(1, -1)
    if "own" not in state:
        own = {"step": torch.zeros((), dtype=torch.int64), "next": 0, "bases": [[]]}
        if shape:
            own["factors"] = [G.new_zeros(1, n, n) for n in shape]
            own["bases"] = [[torch.eye(n, dtype=G.dtype, device=G.device)[None]] for n in shape]
        state["own"] = own
    own = state["own"]
    modes = tuple(range(len(own["bases"])))
    if shape:
        for factor, product in zip(own["factors"], (G @ G.mT, G.mT @ G), strict=True):
            factor.lerp_(product, 1 - AVERAGING)
        done = int(own["step"])
        if done >= own["next"]:
            own["next"] = done + gap(done)
            _renew(own, modes)
    X = layer_directions([G], own, (modes,), hyper)[0].reshape(gradient.shape)
    return torch.view_as_complex(X) if param.is_complex() else X.to(param.dtype)


def _renew(own: dict[str, Any], modes: tuple[int, ...]) -> None:
    """Decompose the averaged products; a basis that cannot be had stays as it was."""
    found = [robust_eigh(factor) for factor in own["factors"]]
    new = [
        before if pair is None else [pair[1]]
        for before, pair in zip(own["bases"], found, strict=True)
    ]
    change_basis(own, new, (modes,))
