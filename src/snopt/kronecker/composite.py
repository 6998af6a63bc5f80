"""Layers with several matrices: recurrent cells, recurrent layers, attention.

torch evaluates such a layer as a whole, so no hook sees the inputs of each matrix. After a call has
been differentiated, the layer is therefore evaluated again from the same inputs, outside the model,
with every matrix product written out. The gradients of the layer's outputs are pulled back to these
products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from snopt.kronecker.attention import attention_matrices, attention_readings
from snopt.kronecker.calls import Arguments, Gradients, first_input
from snopt.kronecker.linear import MatrixView, StackedView
from snopt.kronecker.readings import Reading
from snopt.kronecker.recurrent import (
    cell_matrices,
    cell_readings,
    sequence_matrices,
    sequence_readings,
)

__all__ = ["Composite", "composite_of", "readings_of"]


@dataclass(frozen=True)
class Composite:
    """A kind of layer with several matrices.

    Attributes:
        matrices: names of a layer's matrices, each with the name of its bias ("" if it has none).
            Empty if the layer cannot be read.
        readings: function from arguments and output gradients of a call to the readings of each
            matrix.
        recurrent: whether it is a recurrent cell or layer.
    """

    matrices: Callable[[Any], dict[str, str]]
    readings: Callable[[Any, Arguments, Gradients], list[Reading]]
    recurrent: bool = True

    def view(self, module: nn.Module, matrix: str, *, bias: bool) -> MatrixView:
        """Return the view of one matrix."""
        name = self.matrices(module)[matrix] if bias else None
        if matrix == "in_proj_weight":
            return StackedView(module, matrix, name, 3)
        return MatrixView(module, matrix, name)


_CELL = Composite(cell_matrices, cell_readings)
_SEQUENCE = Composite(sequence_matrices, sequence_readings)
COMPOSITES: dict[type[nn.Module], Composite] = {
    nn.RNNCell: _CELL,
    nn.GRUCell: _CELL,
    nn.LSTMCell: _CELL,
    nn.RNN: _SEQUENCE,
    nn.GRU: _SEQUENCE,
    nn.LSTM: _SEQUENCE,
    nn.MultiheadAttention: Composite(attention_matrices, attention_readings, recurrent=False),
}


def composite_of(module: nn.Module) -> Composite | None:
    """Return how a layer is read; None if it is not composite or overrides ``forward``.

    Example:
        >>> composite_of(nn.GRUCell(2, 2)) is not None, composite_of(nn.Linear(2, 2))
        (True, None)
    """
    for kind, composite in COMPOSITES.items():
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return composite
    return None


def readings_of(module: nn.Module, arguments: Arguments, gradients: Gradients) -> list[Reading]:
    """Return the readings of each matrix of a layer in a call.

    Args:
        module: the layer.
        arguments: the arguments of the call.
        gradients: gradients of its outputs.

    Example:
        >>> import torch
        >>> cell, x = nn.GRUCell(2, 3), torch.ones(5, 2)
        >>> [(name, g.shape) for name, _, g in readings_of(cell, ((x,), {}), [torch.ones(5, 3)])]
        [('weight_ih', torch.Size([5, 9])), ('weight_hh', torch.Size([5, 9]))]
    """
    composite = composite_of(module)
    if composite is not None:
        return composite.readings(module, arguments, gradients)
    (g,) = gradients
    return [] if g is None else [("weight", first_input(arguments), g)]
