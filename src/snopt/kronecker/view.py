"""The canonical layout of a layer.

A layer multiplies features by the same matrix at every position. The data of every kind of layer is
laid out as

    ``[groups, batch, shared, features]``

* ``batch``    examples;
* ``shared``   positions of one example that use the same weights (the pixels of a
  convolution's output, the steps of a sequence; 1 for a plain linear layer);
* ``features`` columns of the weight matrix (inputs, with a final 1 where the layer has a bias) or
  its rows (output gradients);
* ``groups``   independent matrices (a grouped convolution; otherwise 1).

With rows z (inputs) and g (output gradients) the gradient of the packed weight matrix is

    dL/dW[group] = Σ_batch Σ_shared g zᵀ.

Factors, eigenbases and updates use this layout only.

The *modes* of the weights are ``(out, in)`` for a matrix and ``(out, in channels, kernel)`` for a
convolution in the form ``"per_axis"``. Each mode has one symmetric factor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import Tensor, nn

from snopt.kronecker.normalised import matrix_of

__all__ = ["LayerView"]


class LayerView(ABC):
    """One layer in the canonical layout.

    Attributes:
        module: the layer.
        bias: whether its bias is part of the view.
        groups: number of independent matrices.
        mode_sizes: size of each mode, outputs first.
        target_modes: for each packed tensor, the modes along its axes (after the group axis).
    """

    module: nn.Module
    bias: bool
    groups: int
    mode_sizes: tuple[int, ...]
    target_modes: tuple[tuple[int, ...], ...]

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Return the parameters of the view: the weight, then the bias if it is covered.

        For a normalised layer, the matrix that its weight is computed from.
        """
        weight = matrix_of(self.module)
        assert weight is not None
        if not self.bias:
            return (weight,)
        bias: nn.Parameter = self.module.bias  # type: ignore[assignment]
        return (weight, bias)

    @abstractmethod
    def inputs(self, z: Tensor) -> Tensor:
        """Lay the layer's input out as ``[groups, batch, shared, in features]``."""

    def inputs_in_parts(self, z: Tensor) -> Iterable[Tensor]:
        """Lay the input out in parts of the batch, for views whose layout is large."""
        return [self.inputs(z)]

    @abstractmethod
    def output_gradients(self, g: Tensor) -> Tensor:
        """Lay the gradient of its output out as ``[groups, batch, shared, out features]``."""

    @abstractmethod
    def pack(self, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
        """Arrange tensors shaped like the parameters as ``[groups, mode, mode, ...]``."""

    @abstractmethod
    def unpack(self, packed: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Undo :meth:`pack`."""
