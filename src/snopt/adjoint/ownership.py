"""Detection of tensors that a field uses but that were not passed to the adjoint.

An adjoint that re-runs the field returns gradients for the parameters that it received. Any other
tensor that requires a gradient would silently get none, so using one is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from torch import Tensor, nn

from snopt.base.errors import GradientError

#: Fields that passed the check; it takes longer than one evaluation of a small field.
_SEEN: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def foreign_leaf(value: Tensor, known: Sequence[Tensor]) -> Tensor | None:
    """Return a leaf of the graph of ``value`` that is not among ``known``, or None.

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
    """Raise GradientError if the graph of ``value`` from ``x`` has other leaves than ``params``.

    A module is checked only once.
    """
    if isinstance(field, nn.Module) and field in _SEEN:
        return
    leaf = foreign_leaf(value, [x, *params])
    if leaf is not None:
        raise GradientError(
            f"the field uses {_described(field, leaf)} that requires a gradient but is not among "
            "its parameters, so this adjoint would not compute its gradient; pass it as "
            "context=... (the field is then called as field(t, x, context)), make it a parameter "
            "of the field, or use adjoint='direct'."
        )
    if isinstance(field, nn.Module):
        _SEEN.add(field)


def _described(field: object, leaf: Tensor) -> str:
    """Describe a foreign tensor, or the field's first attribute that requires a gradient."""
    for place, module in field.named_modules() if isinstance(field, nn.Module) else ():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.requires_grad:
                path = f"{place}.{name}" if place else name
                return f"a tensor of shape {tuple(value.shape)}, its attribute {path!r},"
    return f"a tensor of shape {tuple(leaf.shape)}"
