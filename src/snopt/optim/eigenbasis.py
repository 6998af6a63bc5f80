"""Changes of basis: into the eigenbasis of Kronecker factors, back, and between eigenbases.

The curvature of a layer is a Kronecker product of one symmetric factor per mode of its weights
(``(out, in)`` for a matrix). Its eigenvectors are Kronecker products of the factors' eigenvectors,
so a change of basis multiplies each mode by a small orthogonal matrix:

    X = U_Bᵀ G U_A        (Algorithm 2, line 4)
    δθ = U_B X U_Aᵀ       (Algorithm 2, line 7)

A weight tensor here is ``[groups, mode, mode, ...]``. A *mode basis* is a list of orthogonal blocks
``[groups, b, b]`` along the diagonal: one block for a full basis, several if the factor is too
large for one block, none for the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = [
    "Bases",
    "ModeBasis",
    "carry_second_moment",
    "rotate",
    "rotate_back",
    "transitions",
]

ModeBasis: TypeAlias = list[Tensor]
Bases: TypeAlias = Sequence[ModeBasis]

#: Rows over columns of a gradient that is rotated as its transpose.
NARROW = 8


def _along(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """Multiply ``matrix`` ``[groups, d, e]`` onto one axis of ``x``: Σ_d x[.. d ..] M[d, e]."""
    shape = [*x.shape[:axis], matrix.shape[-1], *x.shape[axis + 1 :]]
    groups, size = x.shape[0], x.shape[axis]
    # For small layers bmm takes half the time of matmul, which first finds out how to broadcast.
    if axis == x.dim() - 1:
        out = torch.bmm(x.reshape(groups, -1, size), matrix)
    elif axis == 1:
        columns = x.reshape(groups, size, -1)
        # On the CPU, a product with a few columns takes up to six times as long as one with rows.
        narrow = NARROW * columns.shape[-1] < size
        out = torch.bmm(columns.mT, matrix).mT if narrow else torch.bmm(matrix.mT, columns)
    else:
        out = matrix.mT[:, None] @ x.reshape(groups, x.shape[1:axis].numel(), size, -1)
    return out.reshape(shape)


def _apply(x: Tensor, bases: Bases, *, transpose: bool) -> Tensor:
    if len(bases) != x.dim() - 1:
        raise ValueError(
            f"{len(bases)} mode bases for a tensor of shape {tuple(x.shape)}: after the group "
            "axis there must be one for each axis"
        )
    for axis, blocks in enumerate(bases, start=1):
        if not blocks:
            continue
        matrices = [block.mT if transpose else block for block in blocks]
        if len(matrices) == 1:
            x = _along(x, axis, matrices[0])
        else:
            parts = x.split([block.shape[-1] for block in blocks], dim=axis)
            x = torch.cat(
                [_along(part, axis, m) for part, m in zip(parts, matrices, strict=True)], dim=axis
            )
    return x


def rotate(x: Tensor, bases: Bases) -> Tensor:
    """Express a weight tensor in the eigenbasis: ``X = U_Bᵀ G U_A`` (Algorithm 2, line 4).

    Args:
        x: G, as ``[groups, mode, mode, ...]``.
        bases: U_B, U_A, ...: one mode basis for each axis after the first.

    Example:
        >>> G = torch.tensor([[[1.0, 2.0]]])
        >>> swap = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
        >>> rotate(G, [[], [swap]])
        tensor([[[2., 1.]]])
    """
    return _apply(x, bases, transpose=False)


def rotate_back(x: Tensor, bases: Bases) -> Tensor:
    """Undo :func:`rotate`: ``U_B X U_Aᵀ`` (Algorithm 2, line 7).

    Example:
        >>> turn = torch.tensor([[[0.6, -0.8], [0.8, 0.6]]])
        >>> G = torch.tensor([[[1.0, 2.0]]])
        >>> torch.allclose(rotate_back(rotate(G, [[], [turn]]), [[], [turn]]), G)
        True
    """
    return _apply(x, bases, transpose=True)


def transitions(old: Bases, new: Bases) -> list[ModeBasis]:
    """Return R = U_oldᵀ U_new for each mode, which maps old coordinates to new ones.

    A moment kept in the old eigenbasis is, in the new one, ``rotate(moment, R)``.

    Example:
        >>> U = torch.eye(2)[None]
        >>> transitions([[U]], [[U]])[0][0]
        tensor([[[1., 0.],
                 [0., 1.]]])
    """
    return [
        [u.mT @ w for u, w in zip(before, after, strict=True)]
        for before, after in zip(old, new, strict=True)
    ]


def carry_second_moment(v: Tensor, change: Bases) -> Tensor:
    """Transform a second moment to a new eigenbasis.

    Coordinates transform as ``x' = Rᵀ x``. For uncorrelated coordinates second moments transform
    with the squared entries, ``v'_j = Σ_i R_ij² v_i``, which preserves their sum and sign.

    Args:
        v: second moment in the old basis.
        change: R for each mode, from :func:`transitions`.

    Example:
        >>> R = torch.tensor([[[0.6, -0.8], [0.8, 0.6]]])
        >>> carry_second_moment(torch.tensor([[1.0, 0.0]]), [[R]])
        tensor([[0.3600, 0.6400]])
    """
    return _apply(v, [[block.square() for block in mode] for mode in change], transpose=False)
