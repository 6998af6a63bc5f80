"""An eigendecomposition that does not interrupt training.

LAPACK's symmetric solver may fail to converge on nearly degenerate factors in single
precision and raise an exception; on NaN its result is undefined. The attempts below are made in
order; normally the first succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.base.finite import all_finite
from snopt.optim.batching import alike

__all__ = ["each_eigh", "robust_eigh"]

#: Jitter added to the diagonal, relative to its mean, in successive attempts.
JITTERS = (0.0, 1e-6, 1e-3)


def _attempt(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except RuntimeError:  # torch.linalg.LinAlgError is one
        return None
    return (values, vectors) if all_finite([values, vectors]) else None


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT).mul_(0.5)


def each_eigh(matrices: Sequence[Tensor]) -> list[tuple[Tensor, Tensor] | None]:
    """Decompose several matrices with :func:`robust_eigh`, small ones of equal size in one call.

    If the common call fails, every matrix is decomposed by itself, so that one that cannot be
    decomposed does not affect the others.

    Example:
        >>> good, bad = each_eigh([torch.eye(2), torch.full((2, 2), torch.nan)])
        >>> good[0], bad
        (tensor([1., 1.]), None)
    """
    results: list[tuple[Tensor, Tensor] | None] = [None] * len(matrices)
    for batch in alike(matrices, [matrix.shape for matrix in matrices]):
        stack = torch.stack([matrices[i] for i in batch]) if len(batch) > 1 else None
        common = None
        if stack is not None and all_finite([stack]):
            common = _attempt(_symmetric(stack))
        for n, i in enumerate(batch):
            if common is None:
                results[i] = robust_eigh(matrices[i])
            else:
                results[i] = common[0][n], common[1][n]
    return results


def robust_eigh(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """Decompose symmetric matrices as ``U diag(σ) Uᵀ``, or return None.

    The matrix is checked for finite entries and symmetrised; then its own precision is tried,
    then float64, then float64 with growing jitter on the diagonal.

    Args:
        matrix: ``[..., d, d]``.

    Returns:
        eigenvalues ascending and eigenvectors in columns, in the dtype of ``matrix``; None
        if an entry is not finite or no attempt succeeded. The caller keeps its old basis.

    Example:
        >>> values, vectors = robust_eigh(torch.diag(torch.tensor([2.0, 1.0])))
        >>> values
        tensor([1., 2.])
        >>> robust_eigh(torch.tensor([[float("nan")]])) is None
        True
    """
    if not all_finite([matrix]):
        return None
    matrix = _symmetric(matrix)
    found = _attempt(matrix)
    if found is not None:
        return found
    double = matrix.double()
    eye = torch.eye(matrix.shape[-1], dtype=torch.float64, device=matrix.device)
    scale = double.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    for jitter in JITTERS:
        found = _attempt(double + jitter * scale * eye)
        if found is not None:
            return found[0].to(matrix.dtype), found[1].to(matrix.dtype)
    return None
