"""Convolutions of one, two and three dimensions in the canonical layout.

A convolution is a linear layer applied to the patch under the kernel at each output
position: features are ``in channels × kernel positions``, ``shared`` counts output
positions (the layout of KFC, Grosse and Martens 2016).

Seen axis by axis instead, its weight ``[out, in, kernel]`` has three modes. The factor of the
input channels and that of the kernel positions are the two partial traces of KFC's input
factor, so that a layer of 64 channels and 16 kernel positions needs
eigendecompositions of size 64 and 16 where KFC's is 1,024.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.layers.linear import append_one
from snopt.layers.view import LayerView

__all__ = ["Conv", "ConvForm", "ConvView", "coverage_counts", "pad_input", "patches"]

Conv: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
ConvForm: TypeAlias = Literal["per_axis", "kfc"]


def pad_input(module: Conv, z: Tensor) -> Tensor:
    """Pad the input as the layer itself would: zeros, or its padding mode.

    Example:
        >>> conv = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
        >>> pad_input(conv, torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[3., 1., 2., 3., 1.]]])
    """
    # torch keeps the amounts per side, last dimension first, whatever was asked for
    # ("same" included); it is what its own forward pads with.
    amounts: list[int] = module._reversed_padding_repeated_twice
    if not any(amounts):
        return z
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    return functional.pad(z, amounts, mode=mode)


def patches(module: Conv, z: Tensor) -> Tensor:
    """Cut the patches under the kernel: ``[batch, channels, positions, kernel]``.

    Example:
        >>> conv = nn.Conv1d(1, 1, 2, stride=2, bias=False)
        >>> patches(conv, torch.arange(4.0).reshape(1, 1, 4))[0, 0]
        tensor([[0., 1.],
                [2., 3.]])
    """
    z = pad_input(module, z)
    ndim = z.dim() - 2
    for axis in range(ndim):
        span = module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
        # Each unfold appends the window as a last axis, so earlier axes keep their place.
        z = z.unfold(axis + 2, span, module.stride[axis])[..., :: module.dilation[axis]]
    return z.reshape(
        z.shape[0],
        z.shape[1],
        z.shape[2 : 2 + ndim].numel(),
        z.shape[2 + ndim :].numel(),
    )


def coverage_counts(module: Conv, padded: Tensor) -> Tensor:
    """Count in how many patches each pixel of the padded input lies, as ``[pixels]``.

    Example:
        >>> coverage_counts(nn.Conv1d(1, 1, 2), torch.zeros(1, 1, 4))
        tensor([1., 2., 2., 1.])
    """
    total = padded.new_ones(1)
    for axis, length in enumerate(padded.shape[2:]):
        span = module.dilation[axis] * (module.kernel_size[axis] - 1) + 1
        starts = torch.arange(0, length - span + 1, module.stride[axis], device=padded.device)
        offsets = torch.arange(0, span, module.dilation[axis], device=padded.device)
        places = (starts[:, None] + offsets).flatten()
        counts = padded.new_zeros(length).index_add_(0, places, padded.new_ones(places.numel()))
        total = torch.outer(total, counts).flatten()
    return total


class ConvView(LayerView):
    """``nn.Conv1d/2d/3d`` with stride, padding, padding mode, dilation and groups.

    Args:
        module: the convolution.
        bias: whether to cover its bias.
        form: ``"kfc"``: one matrix ``[out, in · kernel (+ 1)]``; ``"per_axis"``: the weight
            as ``[out, in, kernel]`` and the bias as ``[out]``, one factor for each axis.

    Example:
        >>> view = ConvView(nn.Conv2d(4, 6, 3, padding=1))
        >>> view.inputs(torch.zeros(2, 4, 5, 5)).shape
        torch.Size([1, 2, 25, 37])
        >>> view.mode_sizes, ConvView(nn.Conv2d(4, 6, 3), form="per_axis").mode_sizes
        ((6, 37), (6, 4, 9))
    """

    def __init__(self, module: Conv, *, bias: bool = True, form: ConvForm = "kfc") -> None:
        self.module: Conv = module
        self.bias = bias and module.bias is not None
        self.form = form
        self.groups = module.groups
        self.channels = module.in_channels // module.groups
        self.kernel = module.weight.shape[2:].numel()
        out = module.out_channels // module.groups
        if form == "per_axis":
            self.mode_sizes = (out, self.channels, self.kernel)
            self.target_modes = ((0, 1, 2), (0,)) if self.bias else ((0, 1, 2),)
        else:
            self.mode_sizes = (out, self.channels * self.kernel + int(self.bias))
            self.target_modes = ((0, 1),)

    def _batched(self, x: Tensor) -> Tensor:
        # A convolution accepts one example without a batch axis.
        return x if x.dim() == self.module.weight.dim() else x[None]

    def inputs(self, z: Tensor) -> Tensor:
        """Lay the patches out as ``[groups, batch, positions, in · kernel (+ 1)]``."""
        p = patches(self.module, self._batched(z)).unflatten(1, (self.groups, -1))
        p = p.permute(1, 0, 3, 2, 4).flatten(3)  # [groups, batch, positions, in · kernel]
        return append_one(p) if self.bias and self.form == "kfc" else p

    def output_gradients(self, g: Tensor) -> Tensor:
        """Lay the output's gradient out as ``[groups, batch, positions, out]``."""
        g = self._batched(g).flatten(2).unflatten(1, (self.groups, -1))
        return g.permute(1, 0, 3, 2)

    def channel_gram(self, z: Tensor) -> Tensor:
        """Sum z zᵀ over examples, positions and kernel places: ``[groups, in, in]``.

        Equal to contracting the kernel index of the patches' Gram matrix, without cutting
        patches: a pixel counts as often as patches cover it.
        """
        padded = pad_input(self.module, self._batched(z))
        counts = coverage_counts(self.module, padded)
        pixels = padded.flatten(2).unflatten(1, (self.groups, -1)).permute(1, 2, 0, 3)
        weighted = (pixels * counts).flatten(2)
        gram: Tensor = weighted @ pixels.flatten(2).mT
        return gram

    def kernel_gram(self, z: Tensor) -> Tensor:
        """Sum z zᵀ over examples, positions and channels: ``[groups, kernel, kernel]``."""
        p = patches(self.module, self._batched(z)).unflatten(1, (self.groups, -1))
        p = p.permute(1, 0, 2, 3, 4).flatten(1, 3)
        gram: Tensor = p.mT @ p
        return gram

    def pack(self, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
        """Arrange weight and bias as the form's tensors, groups first."""
        weight = weight.reshape(self.groups, -1, self.channels, self.kernel)
        if self.form == "per_axis":
            return [weight] if bias is None else [weight, bias.reshape(self.groups, -1)]
        matrix = weight.flatten(2)
        if bias is not None:
            matrix = torch.cat([matrix, bias.reshape(self.groups, -1, 1)], dim=2)
        return [matrix]

    def unpack(self, packed: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Undo :meth:`pack`."""
        shape = self.module.weight.shape
        if self.form == "per_axis":
            return packed[0].reshape(shape), packed[1].flatten() if self.bias else None
        matrix = packed[0]
        if not self.bias:
            return matrix.reshape(shape), None
        return matrix[..., :-1].reshape(shape), matrix[..., -1].flatten()
