"""The third argument of a field: any nesting of tensors and other values.

Context tensors that require a gradient are treated like parameters. An adjoint that evaluates the
field again works on detached copies, so the graph behind the context and its hooks are untouched
until the gradient is known.
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
    """Return the tensors of a context that require a gradient.

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
    """Return the context with the tensors of :func:`moving` replaced by ``tensors``."""
    if context is None:
        return None
    found, spec = _pytree.tree_flatten(context)
    rest = list(tensors)
    return _pytree.tree_unflatten([rest.pop(0) if _moves(leaf) else leaf for leaf in found], spec)


def detached(context: Context, *, leaves: bool = False) -> Context:
    """Return the context without its graph.

    With ``leaves=True``, tensors that required a gradient become leaves that require one.
    """
    return with_moving(context, [part.detach().requires_grad_(leaves) for part in moving(context)])


def _moves(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


def extra(context: Context) -> tuple[Any, ...]:
    """Return the arguments that follow the state in a call of the field."""
    return () if context is None else (context,)


def with_context(field: Field, context: Context) -> Field:
    """Return the field as a function of time and state."""
    return field if context is None else lambda t, x: field(t, x, context)  # type: ignore[call-arg]
