"""Several observers on one block.

A block has one observer. Two optimizers on one model, or an optimizer and an observer of the user,
share the block: each joins to receive nodes, and leaves afterwards.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from snopt.adjoint.observer import NodeObserver
from snopt.base.context import Context
from snopt.base.copies import Inert
from snopt.base.types import State

__all__ = ["Observers", "join", "leave"]


class Observers(Inert):
    """Passes every node to each of its members.

    Attributes:
        members: the observers.
        quadrature: their quadrature rule.

    Raises:
        ValueError: the members have different quadrature rules.
    """

    def __init__(self, *members: NodeObserver) -> None:
        self.members = members
        self.quadrature = members[0].quadrature
        for member in members:
            if member.quadrature != self.quadrature:
                raise ValueError(
                    f"two observers of one block have different quadrature rules, "
                    f"{self.quadrature} and {member.quadrature}, but a solve has one set of nodes; "
                    "pass the same KroneckerOptions(quadrature=...) to both optimizers"
                )

    def observe(self, t: Tensor, weight: float, x: State, Q_x: State, *context: Context) -> None:
        """Pass a node to every member."""
        for member in self.members:
            member.observe(t, weight, x, Q_x, *context)


def join(block: Any, observer: NodeObserver) -> None:
    """Add an observer to a block.

    Example:
        >>> import snopt, torch
        >>> block = snopt.NeuralODE(torch.nn.Identity())
        >>> class Watcher:
        ...     quadrature = snopt.PerStep()
        >>> first, second = Watcher(), Watcher()
        >>> join(block, first)
        >>> join(block, second)
        >>> leave(block, first)
        >>> block.observer is second
        True
    """
    there = _members(block)
    block.observer = Observers(*there, observer) if there else observer


def leave(block: Any, observer: NodeObserver) -> None:
    """Remove an observer from a block."""
    rest = [member for member in _members(block) if member is not observer]
    # Create a new group: solves that wait for their backward pass keep the old one.
    block.observer = Observers(*rest) if len(rest) > 1 else next(iter(rest), None)


def _members(block: Any) -> tuple[NodeObserver, ...]:
    observer = block.observer
    if isinstance(observer, Observers):
        return observer.members
    return () if observer is None else (observer,)
