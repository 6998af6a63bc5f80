"""The one protocol by which anything learns of states and adjoints along a path."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from snopt.adjoint.quadrature import Quadrature
from snopt.base.context import Context
from snopt.base.types import State


@runtime_checkable
class NodeObserver(Protocol):
    """Told of quadrature nodes while a gradient is pulled back along a solve.

    Telling happens during the backward pass and never changes a gradient. Evaluations inside
    the solver (stages, rejected steps, first-step guesses) are not told.

    Attributes:
        quadrature: Where the observer wants to be told.
    """

    quadrature: Quadrature

    def observe(self, t: Tensor, weight: float, x: State, Q_x: State, *context: Context) -> None:
        """Take in one node.

        Args:
            t: Time of the node, 0-d.
            weight: Quadrature weight; the weights of a solve add up to ``|t1 - t0|``.
            x: State at the node, in the user's structure.
            Q_x: Adjoint at the node: the gradient of the loss with respect to ``x(t)``.
            *context: What the field is given behind the state, if the call has a context.
        """
