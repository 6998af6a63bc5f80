"""Jacobians, Hessians and directional derivatives of functions of flat vectors.

Forward mode is used if the field's operations support it; otherwise reverse mode is used twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["hessian", "jacobian", "pullback", "pushforward"]


def pullback(f: Callable[..., Any], *primals: Tensor) -> tuple[Any, Callable[..., Any]]:
    """Return ``f(*primals)`` and the map from its cotangents to a tuple of the arguments' ones.

    Example:
        >>> value, pull = pullback(lambda x: x * x, torch.tensor(3.0))
        >>> value, pull(torch.tensor(1.0))
        (tensor(9.), (tensor(6.),))
    """
    found: Any = torch.func.vjp(f, *primals)
    return found[0], found[1]


def jacobian(f: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``f(z)`` and its Jacobian, ``[outputs, inputs]``, by one batch of pull-backs.

    Example:
        >>> jacobian(lambda z: z[:1] * z[1], torch.tensor([2.0, 3.0]))
        (tensor([6.]), tensor([[3., 2.]]))
    """
    value, pull = pullback(f, z)
    eye = torch.eye(value.numel(), dtype=value.dtype, device=value.device)
    (rows,) = torch.func.vmap(pull)(eye)
    return value, rows


def hessian(f: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """Return the Hessian of a scalar function, exactly symmetric.

    Example:
        >>> hessian(lambda z: z[0] * z[1], torch.tensor([2.0, 3.0]))
        tensor([[0., 1.], [1., 0.]])
    """
    gradient = torch.func.grad(f)
    try:
        H: Tensor = torch.func.jacfwd(gradient)(z)
    except RuntimeError:  # an operation whose gradient has no forward-mode rule, or a broken one
        H = torch.func.jacrev(gradient)(z)
    return 0.5 * (H + H.mT)


def pushforward(
    f: Callable[..., Any], primals: tuple[Tensor, ...], tangents: tuple[Tensor, ...]
) -> tuple[Any, Any]:
    r"""Compute directional derivatives along many directions, :math:`f'(z)\, v_i`.

    Args:
        f: a function of tensors that returns a tensor or a tuple of tensors.
        primals: the point z.
        tangents: one tensor per primal, with a new first axis over directions.

    Returns:
        the value, and the derivatives in its structure with a new first axis.

    Example:
        >>> value, along = pushforward(lambda a, b: a * b, (torch.tensor(2.0), torch.tensor(3.0)),
        ...                            (torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])))
        >>> value, along
        (tensor(6.), tensor([3., 2.]))
    """

    def forward(*v: Tensor) -> Any:
        return torch.func.jvp(f, primals, v)

    ways: Any = (None, 0)  # the value is the same for all directions
    try:
        value, along = torch.func.vmap(forward, out_dims=ways)(*tangents)
    except RuntimeError:  # no forward-mode rule, or a broken one: pull back twice instead
        value, pull = pullback(f, *primals)
        zero = torch.utils._pytree.tree_map(torch.zeros_like, value)
        _, push = pullback(pull, zero)
        along = torch.func.vmap(lambda *v: push(v)[0])(*tangents)
    return value, along
