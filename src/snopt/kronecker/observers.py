"""Several observers on one block.

A block tells one observer. Two optimizers on one model, or an optimizer beside an observer of the
user's own, share the block: each joins when it wants to be told, and leaves again.
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
    """Passes on every node to each of its members; they agree on where the nodes are.

    Attributes:
        members: who is told.
        quadrature: where along the path they want to be told.

    Raises:
        ValueError: if the members want to be told in different places.
    """

    def __init__(self, *members: NodeObserver) -> None:
        self.members = members
        self.quadrature = members[0].quadrature
        for member in members:
            if member.quadrature != self.quadrature:
                raise ValueError(
                    f"two observers of one block have the rules {self.quadrature} and "
                    f"{member.quadrature}, and a solve has one set of nodes: give both optimizers "
                    "the same KroneckerOptions(quadrature=...)"
                )

    def observe(self, t: Tensor, weight: float, x: State, Q_x: State, *context: Context) -> None:
        """Tell every member of a node."""
        for member in self.members:
            member.observe(t, weight, x, Q_x, *context)


def join(block: Any, observer: NodeObserver) -> None:
    """Have a block tell an observer too, beside those that it tells already.

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
    """Have a block tell an observer no more; the others stay."""
    rest = [member for member in _members(block) if member is not observer]
    # A new group, not the old one changed: a solve whose backward pass is still to come keeps it.
    block.observer = Observers(*rest) if len(rest) > 1 else next(iter(rest), None)


def _members(block: Any) -> tuple[NodeObserver, ...]:
    observer = block.observer
    if isinstance(observer, Observers):
        return observer.members
    return () if observer is None else (observer,)
