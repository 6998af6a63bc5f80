"""Finding tensors that a field uses but nobody told the adjoint about.

An adjoint that re-runs the field returns gradients for the parameters it was given. A tensor
that a field merely closes over would silently get none, so its discovery is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import Tensor, nn

from snopt.base.errors import GradientError

#: Fields that were looked at before; the look takes longer than a small field's evaluation.
_SEEN: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def foreign_leaf(value: Tensor, known: Sequence[Tensor]) -> Tensor | None:
    """The first leaf on a value's tape that is not among the known ones.

    Args:
        value: A tensor with a tape.
        known: Tensors that are accounted for.

    Returns:
        A leaf that is not, or None.

    Example:
        >>> import torch
        >>> a, b = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
        >>> foreign_leaf(a.sum() * b.sum(), [a]).shape
        torch.Size([3])
    """
    ids = {id(tensor) for tensor in known}
    stack, visited = [value.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in ids:
            return leaf  # type: ignore[no-any-return]
        stack.extend(after for after, _ in node.next_functions)
    return None


def check_owned(field: object, value: Tensor, x: Tensor, params: Sequence[Tensor]) -> None:
    """Raise if a field's value depends on a tensor that would get no gradient.

    Args:
        field: The user's field; a module is looked at once in its life.
        value: Its value, on a tape that starts at ``x``.
        x: The state, a leaf.
        params: The parameters that will get gradients.

    Raises:
        GradientError: There is such a tensor.
    """
    if isinstance(field, nn.Module):
        if field in _SEEN:
            return
        _SEEN.add(field)
    leaf = foreign_leaf(value, [x, *params])
    if leaf is not None:
        if isinstance(field, nn.Module):
            _SEEN.discard(field)
        raise GradientError(
            f"the field uses {_described(field, leaf)} that requires a gradient but is not among "
            "its parameters, so this adjoint would lose its gradient; pass it to the call as "
            "context=..., which the field takes as field(t, x, context), make it a parameter of "
            "the field, or use adjoint='direct'."
        )


def _described(field: object, leaf: Tensor) -> str:
    """Words for a foreign tensor: the field's attribute, where it is computed from the leaf."""
    for place, module in field.named_modules() if isinstance(field, nn.Module) else ():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.requires_grad:
                path = f"{place}.{name}" if place else name
                return f"a tensor of shape {tuple(value.shape)}, its attribute {path!r},"
    return f"a tensor of shape {tuple(leaf.shape)}"
