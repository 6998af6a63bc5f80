"""Linear layers, and matrices of cells, in the canonical layout."""

from __future__ import annotations

from operator import attrgetter

import torch
from torch import Tensor, nn

from snopt.kronecker.normalised import is_normalised
from snopt.kronecker.view import LayerView

__all__ = ["LinearView", "MatrixView", "StackedView", "append_one", "rows"]


def rows(x: Tensor) -> Tensor:
    """Lay ``[batch, *shared, features]`` out as ``[1, batch, shared, features]``.

    A vector without leading dimensions is one row for the whole batch (the input of a
    time gate or of a hypernetwork): batch and shared are then 1.

    Example:
        >>> rows(torch.zeros(5, 2, 3, 4)).shape
        torch.Size([1, 5, 6, 4])
        >>> rows(torch.zeros(4)).shape
        torch.Size([1, 1, 1, 4])
    """
    if x.dim() == 1:
        return x.reshape(1, 1, 1, -1)
    # The product is explicit because -1 is ambiguous if the batch is empty.
    return x.reshape(1, x.shape[0], x.shape[1:-1].numel(), x.shape[-1])


def append_one(x: Tensor) -> Tensor:
    """Append the constant feature that multiplies a bias.

    Example:
        >>> append_one(torch.zeros(1, 1, 1, 2))
        tensor([[[[0., 0., 1.]]]])
    """
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], dim=-1)


class LinearView(LayerView):
    """``nn.Linear`` with any leading dimensions; the first is the batch, the rest are shared.

    Example:
        >>> view = LinearView(nn.Linear(3, 2))
        >>> view.inputs(torch.zeros(5, 7, 3)).shape, view.mode_sizes
        (torch.Size([1, 5, 7, 4]), (2, 4))
    """

    def __init__(self, module: nn.Linear, *, bias: bool = True) -> None:
        self.module = module
        self.bias = bias and module.bias is not None and not is_normalised(module)
        self._set_sizes(module.out_features, module.in_features)

    def _set_sizes(self, outputs: int, inputs: int, groups: int = 1) -> None:
        self.groups = groups
        self.mode_sizes = (outputs, inputs + int(self.bias))
        self.target_modes = ((0, 1),)

    def inputs(self, z: Tensor) -> Tensor:
        """Lay the input out as ``[1, batch, shared, in features (+ 1)]``."""
        z = rows(z)
        return append_one(z) if self.bias else z

    def output_gradients(self, g: Tensor) -> Tensor:
        """Lay the output's gradient out as ``[1, batch, shared, out features]``."""
        return rows(g)

    def pack(self, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
        """Arrange weight and bias as one matrix ``[1, out, in (+ 1)]``."""
        if bias is not None:
            weight = torch.cat([weight, bias[:, None]], dim=1)
        return [weight[None]]

    def unpack(self, packed: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Undo :meth:`pack`."""
        matrix = packed[0][0]
        return (matrix[:, :-1], matrix[:, -1]) if self.bias else (matrix, None)


class MatrixView(LinearView):
    """One matrix of a layer that has several, with its bias.

    Args:
        module: the layer.
        weight: name of the matrix, ``[out, in]``.
        bias_name: name of its bias; None if it has none or the view does not cover it.

    Example:
        >>> MatrixView(nn.GRUCell(2, 3), "weight_ih", "bias_ih").mode_sizes
        (9, 3)
    """

    def __init__(self, module: nn.Module, weight: str, bias_name: str | None) -> None:
        self.module, self._names = module, (weight, *([bias_name] if bias_name else []))
        self.bias = bias_name is not None
        self._set_sizes(*self.parameters[0].shape)

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Return the matrix, then its bias if it is covered."""
        return tuple(attrgetter(name)(self.module) for name in self._names)


class StackedView(MatrixView):
    """Stacked matrices of equal shape, each with its own inputs.

    Inputs and output gradients have shape ``[matrices, batch, shared, features]``. The inputs
    contain the constant feature of a bias, so padding rows can be zero.

    Example:
        >>> view = StackedView(nn.MultiheadAttention(4, 2), "in_proj_weight", None, 3)
        >>> view.groups, view.mode_sizes
        (3, (4, 4))
    """

    def __init__(self, module: nn.Module, weight: str, bias_name: str | None, count: int) -> None:
        super().__init__(module, weight, bias_name)
        outputs, inputs = self.parameters[0].shape
        self._set_sizes(outputs // count, inputs, count)

    def inputs(self, z: Tensor) -> Tensor:
        """Drop the constant feature if there is no bias."""
        return z if self.bias else z[..., :-1]

    def output_gradients(self, g: Tensor) -> Tensor:
        """Return g, which is in the canonical layout."""
        return g

    def pack(self, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
        """Arrange weight and bias as ``[matrices, out, in (+ 1)]``."""
        matrix = super().pack(weight, bias)[0]
        return [matrix.reshape(self.groups, -1, matrix.shape[-1])]

    def unpack(self, packed: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Undo :meth:`pack`."""
        return super().unpack([packed[0].flatten(0, 1)[None]])
