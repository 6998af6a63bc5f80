r"""The field and the running cost around one point of the path, to second order.

One taped evaluation gives the slope F and, by pull-backs that run together, its Jacobian
:math:`F_z = [F_x, F_u]`, the gradient :math:`H_z` of the Hamiltonian
:math:`H = \ell + Q_x^\top F`, and the matrix of second derivatives that is not a product of
first ones: :math:`H_{zz}`, or :math:`\ell_{zz}` alone if the dynamics are linearised.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snopt.second_order.flat_problem import FlatProblem

__all__ = ["linearise", "pull_back", "taped"]


def linearise(
    problem: FlatProblem, t: Tensor, x: Tensor, Q_x: Tensor, *, exact: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | float]:
    """Expand field and running cost around ``(t, x)`` and the field's own parameters.

    Returns:
        the slope F, ``[m]``; its Jacobian F_z, ``[m, m + n]``; the running cost, ``[1]``; the
        gradient H_z of the Hamiltonian, ``[m + n]``; and the symmetric matrix H_zz if ``exact``,
        else ell_zz (the number zero without a running cost).

    Example:
        >>> class Field(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = torch.nn.Parameter(torch.tensor([3.0]))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> problem = FlatProblem.of(Field(), torch.ones(1), (0.0, 1.0))
        >>> point = torch.tensor(0.0), torch.tensor([2.0]), torch.tensor([5.0])
        >>> _, F_z, _, _, bend = linearise(problem, *point, exact=True)
        >>> F_z, bend
        (tensor([[3., 2.]]), tensor([[0., 5.], [5., 0.]]))
    """
    slope, z = taped(problem, t, x)
    if not exact and problem.running_cost is None:
        F_z = pull_back(slope, z)
        return slope.detach(), F_z, x.new_zeros(1), F_z.mT @ Q_x, 0.0
    with torch.enable_grad():
        ell = problem.running(t, *z)
        g = _gradient(ell + Q_x @ slope if exact else ell, z)
        outputs = torch.cat([slope, g])
    F_z, bend = pull_back(outputs, z).split([problem.m, len(g)])
    H_z = g.detach() if exact else g.detach() + F_z.mT @ Q_x
    return slope.detach(), F_z, ell.detach().reshape(1), H_z, 0.5 * (bend + bend.mT)


def taped(problem: FlatProblem, t: Tensor, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Evaluate the field on autograd's tape; return the slope and the leaves ``(x, u)``."""
    with torch.enable_grad():
        z = x.detach().requires_grad_(), problem.u.detach().requires_grad_()
        return problem.F(t, *z), z


def _gradient(value: Tensor, z: tuple[Tensor, Tensor]) -> Tensor:
    if not value.requires_grad:
        return torch.cat([torch.zeros_like(part) for part in z])
    found = torch.autograd.grad(
        value, z, create_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat(found)


def pull_back(
    outputs: Tensor, wanted: tuple[Tensor, ...], cotangents: Tensor | None = None
) -> Tensor:
    """Pull many cotangents back through one tape at once.

    Args:
        outputs: a vector with a tape, ``[k]``.
        wanted: vectors to differentiate for, N entries in all.
        cotangents: one per row, ``[R, k]``; default the identity, which gives the Jacobian.

    Returns:
        the gradients, ``[R, N]``.

    Example:
        >>> x = torch.tensor([2.0, 3.0], requires_grad=True)
        >>> pull_back(x * x, (x,))
        tensor([[4., 0.], [0., 6.]])
    """
    if cotangents is None:
        cotangents = torch.eye(len(outputs), dtype=outputs.dtype, device=outputs.device)
    count = len(cotangents)
    if not outputs.requires_grad:
        return cotangents.new_zeros(count, sum(map(len, wanted)))
    found = torch.autograd.grad(
        outputs, wanted, cotangents, is_grads_batched=True, allow_unused=True
    )
    parts = [
        cotangents.new_zeros(count, len(w)) if g is None else g
        for g, w in zip(found, wanted, strict=True)
    ]
    return torch.cat(parts, dim=1)
