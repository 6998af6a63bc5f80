"""The ODE blocks of a model."""

from __future__ import annotations

from torch import nn

from snopt.adjoint.block import NeuralODE


def blocks_of(*modules: nn.Module) -> list[NeuralODE]:
    """Return the blocks among modules and their submodules, each once and in order.

    Example:
        >>> block = NeuralODE(nn.Identity())
        >>> blocks_of(nn.Sequential(block, nn.Linear(2, 2)), block) == [block]
        True
    """
    found = [part for module in modules for part in module.modules()]
    return list(dict.fromkeys(part for part in found if isinstance(part, NeuralODE)))
