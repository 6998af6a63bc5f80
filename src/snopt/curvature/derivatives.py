"""Jacobians, Hessians and directional derivatives of functions of flat vectors.

Forward mode is used where the field's operations allow it, and reverse mode twice where not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["hessian", "jacobian", "pushforward"]


def jacobian(f: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """Value and Jacobian, one pull-back an output, all of them at once.

    Args:
        f: A function of a vector with vector values.
        z: Where.

    Returns:
        ``f(z)`` and its Jacobian ``[outputs, inputs]``.

    Example:
        >>> jacobian(lambda z: z[:1] * z[1], torch.tensor([2.0, 3.0]))
        (tensor([6.]), tensor([[3., 2.]]))
    """
    value, pull = torch.func.vjp(f, z)
    eye = torch.eye(value.numel(), dtype=value.dtype, device=value.device)
    (rows,) = torch.func.vmap(pull)(eye)
    return value, rows


def hessian(f: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """The matrix of second derivatives of a scalar function.

    Args:
        f: A function of a vector with scalar values.
        z: Where.

    Returns:
        The Hessian, symmetric to the last bit.

    Example:
        >>> hessian(lambda z: z[0] * z[1], torch.tensor([2.0, 3.0]))
        tensor([[0., 1.], [1., 0.]])
    """
    gradient = torch.func.grad(f)
    try:
        H: Tensor = torch.func.jacfwd(gradient)(z)
    except NotImplementedError:  # an operation without a forward-mode rule
        H = torch.func.jacrev(gradient)(z)
    return 0.5 * (H + H.mT)


def pushforward(
    f: Callable[..., Any], primals: tuple[Tensor, ...], tangents: tuple[Tensor, ...]
) -> tuple[Any, Any]:
    r"""Value of a function and its derivatives along many directions, :math:`f'(z)\, v_i`.

    Args:
        f: A function of tensors that returns a tensor or a tuple of tensors.
        primals: Where.
        tangents: The directions, one tensor for each of ``primals`` with a new first axis over
            directions.

    Returns:
        The value, and the derivatives in its structure with a new first axis.

    Example:
        >>> value, along = pushforward(lambda a, b: a * b, (torch.tensor(2.0), torch.tensor(3.0)),
        ...                            (torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])))
        >>> value, along
        (tensor(6.), tensor([3., 2.]))
    """

    def forward(*v: Tensor) -> tuple[Any, Any]:
        value, along = torch.func.jvp(f, primals, v)
        return value, along

    try:
        return torch.func.vmap(forward, out_dims=(None, 0))(*tangents)  # type: ignore[no-any-return]
    except NotImplementedError:  # no forward-mode rule: pull back twice instead
        value, pull = torch.func.vjp(f, *primals)
        zero = torch.utils._pytree.tree_map(torch.zeros_like, value)
        _, push = torch.func.vjp(pull, zero)
        return value, torch.func.vmap(lambda *v: push(v)[0])(*tangents)
