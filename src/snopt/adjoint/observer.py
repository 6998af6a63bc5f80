"""The protocol for receiving states and adjoints along a path."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from snopt.adjoint.quadrature import Quadrature
from snopt.base.context import Context
from snopt.base.types import State


@runtime_checkable
class NodeObserver(Protocol):
    """Receives quadrature nodes during the backward pass of a solve.

    Observing never changes a gradient. Evaluations inside the solver (stages, rejected steps,
    first-step guesses) are not observed.

    Attributes:
        quadrature: the rule that places the nodes.
    """

    quadrature: Quadrature

    def observe(self, t: Tensor, weight: float, x: State, Q_x: State, *context: Context) -> None:
        """Process one node.

        Args:
            t: time of the node, a 0-d tensor.
            weight: quadrature weight; the weights of a solve sum to ``|t1 - t0|``.
            x: state at the node, in the user's structure.
            Q_x: adjoint at the node: the gradient of the loss with respect to ``x(t)``.
            *context: the context of the call, if it has one.
        """
