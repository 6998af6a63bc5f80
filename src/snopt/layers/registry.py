"""Which layers can be covered, and by which view."""

from __future__ import annotations

from torch import nn

from snopt.layers.conv import ConvForm, ConvView
from snopt.layers.linear import LinearView
from snopt.layers.view import LayerView

__all__ = ["is_covered", "view_of"]


def is_covered(module: nn.Module) -> bool:
    """Tell whether a layer has a view.

    A layer whose weight is computed from other parameters (weight normalisation, a
    parametrisation) has none: the gradient of the computed weight is not kept by torch.

    Example:
        >>> is_covered(nn.Linear(2, 2)), is_covered(nn.GRUCell(2, 2))
        (True, False)
    """
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return isinstance(module, kinds) and module._parameters.get("weight") is not None


def view_of(module: nn.Module, *, bias: bool = True, conv_form: ConvForm = "kfc") -> LayerView:
    """Return the view of a layer.

    Args:
        module: a linear layer or a convolution.
        bias: whether the view covers the bias.
        conv_form: form of a convolution's view.

    Raises:
        TypeError: if the layer has no view.

    Example:
        >>> view_of(nn.Conv1d(2, 3, 5)).mode_sizes
        (3, 11)
    """
    if is_covered(module):
        if isinstance(module, nn.Linear):
            return LinearView(module, bias=bias)
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return ConvView(module, bias=bias, form=conv_form)
    raise TypeError(
        f"{type(module).__name__} has no canonical layout: only Linear and Conv1d/2d/3d with "
        "a weight of their own have one; leave the others to the optimizer's fallback"
    )
