"""An eigendecomposition that does not interrupt training.

LAPACK's symmetric solver may fail to converge on nearly degenerate factors in single
precision and raise an exception; on NaN its result is undefined. The attempts below are made in
order; normally the first succeeds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snopt.base.finite import all_finite

__all__ = ["robust_eigh"]

#: Jitter added to the diagonal, relative to its mean, in successive attempts.
JITTERS = (0.0, 1e-6, 1e-3)


def _attempt(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except RuntimeError:  # torch.linalg.LinAlgError is one
        return None
    return (values, vectors) if all_finite([values, vectors]) else None


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
    matrix = (matrix + matrix.mT).mul_(0.5)
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
