"""Convolutions of one, two and three dimensions in the canonical layout.

A convolution is a linear layer applied to the patch under the kernel at each output position.
Features are ``in channels × kernel positions``, and ``shared`` counts output positions (the layout
of KFC, Grosse and Martens 2016).

In the form ``"per_axis"`` its weight ``[out, in, kernel]`` has three modes. The factors of the
input channels and of the kernel positions are the two partial traces of KFC's input factor. A layer
of 64 channels and 16 kernel positions then needs eigendecompositions of size 64 and 16; that of KFC
has size 1,024.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.kronecker.normalised import is_normalised
from snopt.kronecker.view import LayerView
from snopt.kronecker.windows import Axis, coverage_counts, position_gram, windows

__all__ = ["Conv", "ConvForm", "ConvView", "kernel_axes", "pad_input"]

Conv: TypeAlias = nn.Conv1d | nn.Conv2d | nn.Conv3d
ConvForm: TypeAlias = Literal["per_axis", "kfc"]

#: Entries per part in :meth:`ConvView.inputs_in_parts`.
PART = 2**20


def pad_input(module: Conv, z: Tensor) -> Tensor:
    """Pad the input as the layer does: with zeros, or in its padding mode.

    Example:
        >>> conv = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular")
        >>> pad_input(conv, torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[3., 1., 2., 3., 1.]]])
    """
    if not any(map(any, _padding(module))):
        return z
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    return functional.pad(z, module._reversed_padding_repeated_twice, mode=mode)


def _padding(module: Conv) -> list[tuple[int, int]]:
    """Return the pixels added before and after each axis."""
    # torch stores the amounts per side, last dimension first, also for padding="same".
    amounts: list[int] = module._reversed_padding_repeated_twice
    return list(zip(amounts[::2], amounts[1::2], strict=True))[::-1]


def kernel_axes(module: Conv) -> list[Axis]:
    """Return the axes of a convolution's kernel.

    Example:
        >>> kernel_axes(nn.Conv1d(1, 1, 3, stride=2))
        [Axis(size=3, stride=2, dilation=1)]
    """
    settings = zip(module.kernel_size, module.stride, module.dilation, strict=True)
    return [Axis(*setting) for setting in settings]


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
        self.bias = bias and module.bias is not None and not is_normalised(module)
        self.form = form
        self.groups = module.groups
        self.channels = module.in_channels // module.groups
        self.kernel = torch.Size(module.kernel_size).numel()
        self.axes = kernel_axes(module)
        out = module.out_channels // module.groups
        if form == "per_axis":
            self.mode_sizes = (out, self.channels, self.kernel)
            self.target_modes = ((0, 1, 2), (0,)) if self.bias else ((0, 1, 2),)
        else:
            self.mode_sizes = (out, self.channels * self.kernel + int(self.bias))
            self.target_modes = ((0, 1),)

    def _batched(self, x: Tensor) -> Tensor:
        # A convolution accepts one example without a batch axis.
        return x if x.dim() == 2 + len(self.axes) else x[None]

    def inputs(self, z: Tensor) -> Tensor:
        """Lay the patches out as ``[groups, batch, positions, in · kernel (+ 1)]``."""
        z = pad_input(self.module, self._batched(z)).unflatten(1, (self.groups, -1))
        cut, ndim = windows(z, self.axes), len(self.axes)
        # From [batch, groups, channels, *positions, *kernel]. Features come first, because the only
        # copy then reads contiguous pixels.
        places, kernel = range(3, 3 + ndim), range(3 + ndim, 3 + 2 * ndim)
        cut = cut.permute(1, 2, *kernel, 0, *places)
        features, one = self.channels * self.kernel, int(self.bias and self.form == "kfc")
        out = z.new_empty(self.groups, features + one, *cut.shape[2 + ndim :])
        out[:, :features].unflatten(1, cut.shape[1 : 2 + ndim]).copy_(cut)
        out[:, features:] = 1  # the constant feature of the bias
        return out.flatten(3).permute(0, 2, 3, 1)

    def inputs_in_parts(self, z: Tensor) -> Iterator[Tensor]:
        """Lay the patches out a few examples at a time; a part fits into a cache."""
        z = self._batched(z)
        pixels = pad_input(self.module, z[:1]).shape[2:]
        places = [axis.positions(n) for axis, n in zip(self.axes, pixels, strict=True)]
        entries = self.mode_sizes[-1] * self.groups * torch.Size(places).numel()
        for part in z.split(max(1, PART // entries)):
            yield self.inputs(part)

    def output_gradients(self, g: Tensor) -> Tensor:
        """Lay the output's gradient out as ``[groups, batch, positions, out]``."""
        g = self._batched(g).flatten(2).unflatten(1, (self.groups, -1))
        return g.permute(1, 0, 3, 2)

    def channel_gram(self, z: Tensor) -> Tensor:
        """Sum z zᵀ over examples, positions and kernel entries: ``[groups, in, in]``.

        Equal to contracting the kernel index of the patches' Gram matrix, without forming patches:
        each pixel is weighted by the number of patches that cover it.
        """
        x, counts = self._covered(self._batched(z))
        pixels = x.flatten(2).unflatten(1, (self.groups, -1)).permute(1, 2, 0, 3)
        # Both sides are scaled by the root of the count and share one copy.
        rows = pixels.clone(memory_format=torch.contiguous_format).mul_(counts.sqrt().flatten())
        rows = rows.flatten(2)
        gram: Tensor = rows @ rows.mT
        return gram

    def _covered(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pixels that are not padding zeros, and how many patches cover each."""
        amounts = _padding(self.module)
        lengths = [n + low + high for n, (low, high) in zip(z.shape[2:], amounts, strict=True)]
        if self.module.padding_mode != "zeros":
            z, amounts = pad_input(self.module, z), [(0, 0)] * len(lengths)
        counts = z.new_ones(())
        for axis, n, (low, high) in zip(self.axes, lengths, amounts, strict=True):
            line = z.new_tensor(coverage_counts(axis, n)[low : n - high])
            counts = counts[..., None] * line
        return z, counts

    def kernel_gram(self, z: Tensor) -> Tensor:
        """Sum z zᵀ over examples, positions and channels: ``[groups, kernel, kernel]``."""
        padded = pad_input(self.module, self._batched(z))
        grouped = padded.unflatten(1, (self.groups, -1)).transpose(0, 1).flatten(1, 2)
        return position_gram(grouped, self.axes)

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
        shape = self.parameters[0].shape
        if self.form == "per_axis":
            return packed[0].reshape(shape), packed[1].flatten() if self.bias else None
        matrix = packed[0]
        if not self.bias:
            return matrix.reshape(shape), None
        return matrix[..., :-1].reshape(shape), matrix[..., -1].flatten()
