r"""Divergence and size of a field's Jacobian :math:`J = \partial F / \partial x`, per sample.

Both come from products with J. Exactly, with one product per dimension:

.. math:: \mathrm{div} F = \sum_i e_i^T J e_i, \qquad \|J\|_F^2 = \sum_i \|J e_i\|^2,

or in expectation, from one product with noise e of mean zero and unit covariance (Hutchinson):

.. math:: \mathrm{div} F = E[e^T J e], \qquad \|J\|_F^2 = E\|J e\|^2.

Noise is drawn once per solve. With new noise at every stage the field would not be a function of
time and state, and an adjoint could not evaluate it again.

A field with a method ``with_tangent`` computes :math:`J v` itself; for other fields, autograd
computes :math:`J^T v`, which has the same trace and the same norm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from snopt.base.errors import unknown
from snopt.base.types import TensorField


class Jacobian(NamedTuple):
    """A field's value and properties of its Jacobian.

    Attributes:
        value: F(t, x), in the shape of ``x``.
        divergence: trace of J, or its estimate, (batch).
        square: squared Frobenius norm of J, or its estimate, (batch).
    """

    value: Tensor
    divergence: Tensor
    square: Tensor


def _rademacher(x: Tensor, generator: torch.Generator | None) -> Tensor:
    signs = torch.randint(0, 2, x.shape, generator=generator, dtype=x.dtype, device=x.device)
    return 2.0 * signs - 1.0


def _gaussian(x: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)


#: Distributions of mean zero and unit covariance to draw noise from.
NOISE: dict[str, Callable[[Tensor, torch.Generator | None], Tensor]] = {
    "rademacher": _rademacher,
    "gaussian": _gaussian,
}


def draw_noise(kind: str, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw noise in the shape of ``x`` for one solve.

    Args:
        kind: ``"rademacher"`` (signs; the least variance) or ``"gaussian"``.
        x: the state.
        generator: source of randomness; default the global one.

    Example:
        >>> draw_noise("rademacher", torch.zeros(2, 3)).abs()
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    if kind not in NOISE:
        raise unknown("noise", kind, NOISE)
    return NOISE[kind](x, generator)


def estimated(field: TensorField, t: Tensor, x: Tensor, noise: Tensor) -> Jacobian:
    """Estimate divergence and norm from one product with noise.

    Args:
        field: a field whose samples do not influence each other.
        t: time.
        x: states, (batch, ...).
        noise: from :func:`draw_noise`.

    Example:
        >>> x = torch.zeros(1, 2)
        >>> jacobian = estimated(lambda t, x: 3 * x, torch.tensor(0.0), x, torch.ones(1, 2))
        >>> jacobian.divergence, jacobian.square
        (tensor([6.]), tensor([18.]))
    """
    value, (product,) = _products(field, t, x, noise[None])
    return Jacobian(value, (product * noise).flatten(1).sum(1), product.square().flatten(1).sum(1))


def exact(field: TensorField, t: Tensor, x: Tensor) -> Jacobian:
    """Compute divergence and norm at states (batch, dim) by one product per dimension.

    Example:
        >>> x = torch.tensor([[1.0, 2.0]])
        >>> exact(lambda t, x: x**2, torch.tensor(0.0), x).divergence.tolist()
        [6.0]
    """
    dim = x.shape[1]
    basis = torch.eye(dim, dtype=x.dtype, device=x.device)[:, None, :].expand(dim, *x.shape)
    value, products = _products(field, t, x, basis)
    divergence = products.diagonal(dim1=0, dim2=2).sum(1)
    return Jacobian(value, divergence, products.square().sum((0, 2)))


def _products(field: TensorField, t: Tensor, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return F and its products with each of the directions ``v``, (directions, batch, ...)."""
    with_tangent = getattr(field, "with_tangent", None)
    if with_tangent is not None:
        return with_tangent(t, x, v)  # type: ignore[no-any-return]
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        if not (keep and x.requires_grad):
            x = x.detach().requires_grad_()
        value = field(t, x)
        if not value.requires_grad:  # a constant
            return value, torch.zeros_like(v)
        products = [
            torch.autograd.grad(
                value, x, direction, create_graph=keep, retain_graph=True, materialize_grads=True
            )[0]
            for direction in v
        ]
    return value if keep else value.detach(), torch.stack(products)
