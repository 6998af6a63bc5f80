"""What a field is given besides time and state: any nesting of tensors and other values.

Its tensors that require a gradient take part in a solve as parameters do. An adjoint that
evaluates the field again works on detached copies, so that the graph behind the context, and the
hooks on it, are left alone until the gradient is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils import _pytree

from snopt.base.types import Field

#: Tensors and other values in tuples, lists and dictionaries; None for a field without a context.
Context: TypeAlias = Any


def moving(context: Context) -> tuple[Tensor, ...]:
    """The tensors of a context that require a gradient.

    Example:
        >>> import torch
        >>> a, b = torch.ones(2, requires_grad=True), torch.ones(3)
        >>> [tensor.shape for tensor in moving({"a": a, "b": (b, 4)})]
        [torch.Size([2])]
    """
    if context is None:
        return ()
    return tuple(leaf for leaf in _pytree.tree_leaves(context) if _moves(leaf))


def with_moving(context: Context, tensors: Sequence[Tensor]) -> Context:
    """The context with other tensors in the place of those that require a gradient.

    Args:
        context: Any context.
        tensors: As many as :func:`moving` returns.

    Returns:
        A context of the same structure.
    """
    if context is None:
        return None
    found, spec = _pytree.tree_flatten(context)
    rest = list(tensors)
    return _pytree.tree_unflatten([rest.pop(0) if _moves(leaf) else leaf for leaf in found], spec)


def detached(context: Context, *, leaves: bool = False) -> Context:
    """The context without its graph.

    Args:
        context: Any context.
        leaves: Whether tensors that required a gradient require one again, as new leaves.

    Returns:
        A context of the same structure.
    """
    return with_moving(context, [part.detach().requires_grad_(leaves) for part in moving(context)])


def _moves(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


def extra(context: Context) -> tuple[Any, ...]:
    """The arguments that a field is given behind the state."""
    return () if context is None else (context,)


def with_context(field: Field, context: Context) -> Field:
    """The field as a function of time and state.

    Args:
        field: The user's field.
        context: What it is given behind the state; None for nothing.

    Returns:
        The field itself without a context.
    """
    return field if context is None else lambda t, x: field(t, x, context)  # type: ignore[call-arg]
