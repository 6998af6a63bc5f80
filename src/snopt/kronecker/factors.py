"""Kronecker factors of one layer: computed per call, summed over time, averaged.

Rows are in the canonical layout of :mod:`snopt.kronecker.view`, ``[groups, batch, shared,
features]``. Write N for the batch, S for the shared positions of one call, and suppose the loss
averages over the batch, so the gradient of one example reaches the layer as g / N. The
factors of one call are normalised so that Ā ⊗ B̄ approximates the Gauss-Newton matrix of the
*mean* loss:

=========  ===========================  ==================================================
sharing    A                            B
=========  ===========================  ==================================================
expand     1/N Σ z zᵀ                   N/S Σ g gᵀ            (KFC, Grosse and Martens 2016)
trace      Σ ‖g‖² z zᵀ, trace one       N Σ ‖z‖² g gᵀ         (TKFAC, Gao et al. 2020)
=========  ===========================  ==================================================

Over time they are integrated (eq. ``q-kfac``): a call at a quadrature node counts with the
node's weight. See docs/theory/kronecker.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from snopt.base.finite import all_finite
from snopt.kronecker.conv import ConvView
from snopt.kronecker.normalised import row_scale
from snopt.kronecker.view import LayerView

__all__ = [
    "FactorSums",
    "LayerFactors",
    "Modes",
    "Sharing",
    "block_sizes",
    "call_factors",
    "gram_blocks",
]

Sharing: TypeAlias = Literal["expand", "trace"]
#: Smallest number of examples in a sample.
FEWEST = 8
#: For each mode, the blocks ``[groups, b, b]`` on the diagonal of its factor.
Modes: TypeAlias = list[list[Tensor]]


def block_sizes(size: int, max_size: int) -> list[int]:
    """Split a mode that is too large for one factor into as few, nearly equal, blocks as possible.

    Args:
        size: size of the mode.
        max_size: the largest block allowed.

    Example:
        >>> block_sizes(5, 8), block_sizes(10, 4)
        ([5], [4, 3, 3])
    """
    count = -(-size // max_size)
    return [size // count + (1 if i < size % count else 0) for i in range(count)]


def gram_blocks(
    x: Tensor, sizes: Sequence[int], scale: float, weight: Tensor | None = None
) -> list[Tensor]:
    """Sum ``w x xᵀ`` over rows, block by block on the diagonal.

    Args:
        x: rows ``[groups, rows, features]``.
        sizes: block sizes; their sum is ``features``.
        scale: factor of the sums.
        weight: w of each row, ``[groups, rows, 1]``.

    Example:
        >>> gram_blocks(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), [2], 0.5)[0]
        tensor([[[ 5.,  7.],
                 [ 7., 10.]]])
    """
    parts = [x] if len(sizes) == 1 else x.split(list(sizes), dim=-1)
    return [(part.mT @ (part if weight is None else part * weight)).mul_(scale) for part in parts]


def _joined(x: Tensor) -> Tensor:
    """Return rows ``[groups, batch · shared, features]`` of the canonical layout.

    The features of a convolution are not contiguous in memory; a copy keeps their order.
    """
    return x.flatten(1, 2) if x.stride(-1) == 1 else x.permute(0, 3, 1, 2).flatten(2).mT


def _added(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    """Add lists of tensors to the first one, in place."""
    parts = iter(parts)
    total = next(parts)
    for part in parts:
        for block, more in zip(total, part, strict=True):
            block += more
    return total


def _diagonal_blocks(matrix: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Cut the diagonal blocks out of a matrix ``[groups, d, d]``."""
    out, start = [], 0
    for size in sizes:
        out.append(matrix[:, start : start + size, start : start + size])
        start += size
    return out


def _accumulation(x: Tensor) -> Tensor:
    """Convert half precision to single precision for sums."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def call_factors(
    view: LayerView,
    z: Tensor,
    g: Tensor,
    *,
    sharing: Sharing = "expand",
    sizes: Sequence[Sequence[int]] | None = None,
    inputs: bool = True,
) -> Modes:
    """Return the factors of one call of a layer: A(t) and B(t) of eq. ``q-kfac`` in a field.

    Args:
        view: the layer.
        z: input of the layer.
        g: the gradient of the loss with respect to its output.
        sharing: how shared positions are weighted; see the module's table.
        sizes: block sizes of each mode; default one block each.
        inputs: whether to compute the input factors; False if these inputs were already counted
            with another g.

    Returns:
        the blocks of each mode: B first, then A (or its two axis factors, each summed over the
        other axis).

    Example:
        >>> from snopt.kronecker import LinearView
        >>> view = LinearView(torch.nn.Linear(1, 1, bias=False))
        >>> B, A = call_factors(view, torch.tensor([[1.0], [3.0]]), torch.tensor([[0.5], [0.5]]))
        >>> A[0], B[0]
        (tensor([[[5.]]]), tensor([[[1.]]]))
    """
    if sizes is None:
        sizes = [[size] for size in view.mode_sizes]
    z, g_rows = _accumulation(z), view.output_gradients(_accumulation(g))
    scale = row_scale(view.module)
    if scale is not None:
        g_rows = g_rows * scale.to(g_rows).view(view.groups, 1, 1, -1)
    N, S = g_rows.shape[1:3]
    if sharing == "trace" and len(sizes) == 2:
        z_rows, g_rows = _joined(view.inputs(z)), _joined(g_rows)
        B = gram_blocks(g_rows, sizes[0], N, z_rows.square().sum(-1, keepdim=True))
        return [B, gram_blocks(z_rows, sizes[1], N, g_rows.square().sum(-1, keepdim=True))]
    B = gram_blocks(_joined(g_rows), sizes[0], N / S)
    if not inputs:
        return [B, *([] for _ in sizes[1:])]
    if isinstance(view, ConvView) and view.form == "per_axis":
        grams = (view.channel_gram(z) / N, view.kernel_gram(z) / N)
        return [B, *map(_diagonal_blocks, grams, sizes[1:])]
    parts = view.inputs_in_parts(z)
    return [B, _added(gram_blocks(_joined(part), sizes[1], 1 / N) for part in parts)]


def sampled_factors(
    view: LayerView,
    z: Tensor,
    g: Tensor,
    *,
    sample: int | None,
    turn: int,
    rows: float = 0.0,
    **how: Any,
) -> Modes:
    """Estimate the factors of one call from evenly spaced examples, if these have many positions.

    If examples have one position each, all are used.

    Args:
        view: the layer.
        z: its input.
        g: the gradient with respect to its output.
        sample: smallest number of rows per feature to use; None uses all.
        turn: which of the evenly spaced sets to use; calls and refreshes take turns.
        rows: known number of rows of all calls in the iteration.
        **how: see :func:`call_factors`.

    Example:
        >>> view = ConvView(torch.nn.Conv1d(1, 1, 1, bias=False))
        >>> z = g = torch.ones(64, 1, 8)
        >>> every, some = (sampled_factors(view, z, g, sample=s, turn=0) for s in (None, 8))
        >>> every == some
        True
    """
    N, S = view.output_gradients(g).shape[1:3]
    every = 1
    if sample is not None and S > 1 and len(z) == len(g) == N:
        many = int(max(rows, N * S)) // (sample * max(view.mode_sizes))
        every = max(1, min(many, N // FEWEST))
    if every == 1:
        return call_factors(view, z, g, **how)
    start = turn % every
    z, g = z[start::every], g[start::every]
    B, *A = call_factors(view, z, g, **how)
    # Each example's gradient is divided by N, not by the number of sampled examples.
    return [[block.mul_((N / len(g)) ** 2) for block in B], *A]


@dataclass
class FactorSums:
    """Sums over the calls of one layer.

    Attributes:
        modes: sums of weighted call factors, or None before the first.
        duration: sum of the quadrature weights of the nodes where the layer was called.
    """

    modes: Modes | None = None
    duration: float = 0.0

    def add(self, call: Modes, *, weight: float) -> bool:
        """Add the factors of one call with its quadrature weight.

        Returns:
            whether they were finite. Factors that are not finite are skipped; one overflow (a loss
            scale too high, a diverging solve) then does not invalidate the sums.
        """
        if not all_finite([block for mode in call for block in mode]):
            return False
        if self.modes is None:
            self.modes = [[weight * block for block in mode] for mode in call]
            return True
        for mode, new in zip(self.modes, call, strict=True):
            for total, block in zip(mode, new, strict=False):
                total.add_(block, alpha=weight)
        return True


@dataclass
class LayerFactors:
    """The Kronecker factors of one layer after a refresh.

    Attributes:
        modes: for each mode, outputs first, its diagonal blocks ``[groups, b, b]``.
    """

    modes: Modes

    @property
    def B(self) -> Tensor:
        """Factor of the output gradients, ``[out, out]`` (or ``[groups, out, out]``).

        A factor larger than ``max_size`` is zero outside its blocks.
        """
        return _ungrouped(_dense(self.modes[0]))

    @property
    def A(self) -> Tensor:
        """Factor of the inputs, ``[in, in]`` (or ``[groups, in, in]``).

        For a convolution in the form ``"per_axis"``, the Kronecker product of the factors of the
        channels and of the kernel positions.
        """
        dense = [_dense(mode) for mode in self.modes[1:]]
        total = dense[0]
        for matrix in dense[1:]:
            groups, d, e = total.shape[0], total.shape[1], matrix.shape[1]
            total = torch.einsum("gij,gkl->gikjl", total, matrix).reshape(groups, d * e, d * e)
        return _ungrouped(total)


def _dense(blocks: list[Tensor]) -> Tensor:
    """Put blocks on the diagonal of one matrix."""
    if len(blocks) == 1:
        return blocks[0]
    groups = range(blocks[0].shape[0])
    return torch.stack([torch.block_diag(*[block[g] for block in blocks]) for g in groups])


def _ungrouped(matrix: Tensor) -> Tensor:
    return matrix[0] if matrix.shape[0] == 1 else matrix


def unit_trace(blocks: list[Tensor]) -> list[Tensor]:
    """Divide a factor by its trace, group by group, in place.

    Example:
        >>> unit_trace([2 * torch.eye(2)[None]])[0].diagonal(dim1=-2, dim2=-1)
        tensor([[0.5000, 0.5000]])
    """
    traces = [block.diagonal(dim1=-2, dim2=-1).sum(-1) for block in blocks]
    total = torch.stack(traces).sum(0)[:, None, None]
    # If all inputs were zero so far, the trace is zero and the factor stays zero.
    return [block.div_(torch.where(total > 0, total, 1.0)) for block in blocks]


def finished(
    sums: FactorSums, *, calls: float, b_scale: float, sharing: Sharing
) -> LayerFactors | None:
    """Turn sums over an iteration into factors; the factors reuse the tensors of the sums.

    Args:
        sums: the sums.
        calls: number of batches in the iteration (gradient accumulation). The gradient of each of k
            batches is scaled by 1/k, so A is averaged and B multiplied.
        b_scale: further scale of B: 1 / (t1 - t0) for layers of a vector field, the scaled
            Gauss-Newton terminal condition of the paper's Remark; 1/N² where the loss is a sum.
        sharing: how shared positions were weighted.

    Returns:
        the factors, or None if there were no calls.
    """
    if sums.modes is None:
        return None
    modes, sums.modes = sums.modes, None
    B, A, *kernel = modes
    for block in B:
        block.mul_(calls * b_scale)
    if sharing == "trace" and not kernel:
        unit_trace(A)
    else:
        for block in A:
            block.div_(calls)
    for blocks in kernel:
        unit_trace(blocks)
    return LayerFactors(modes)
