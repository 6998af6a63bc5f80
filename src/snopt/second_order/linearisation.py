r"""The field and the running cost around one point of the path, to second order.

One taped evaluation gives the slope F and, by pull-backs that run together, its Jacobian
:math:`F_z = [F_x, F_u]`, the gradient :math:`H_z` of the Hamiltonian
:math:`H = \ell + Q_x^\top F`, and the matrix of second derivatives that is not a product of
first ones: :math:`H_{zz}`, or :math:`\ell_{zz}` alone if the dynamics are linearised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snopt.second_order.flat_problem import FlatProblem

__all__ = ["Linearisation", "linearise", "pull_back"]


@dataclass(frozen=True)
class Linearisation:
    """Derivatives at one point, z being ``(x, u)``.

    Attributes:
        slope: F, ``[m]``.
        F_z: Its Jacobian, ``[m, m + n]``.
        ell: The running cost, ``[1]``.
        H_z: Gradient of the Hamiltonian, ``[m + n]``.
        bend: ``H_zz`` or ``ell_zz``, symmetric, ``[m + n, m + n]``; None if it is zero.
    """

    slope: Tensor
    F_z: Tensor
    ell: Tensor
    H_z: Tensor
    bend: Tensor | None


def linearise(
    problem: FlatProblem, t: Tensor, x: Tensor, Q_x: Tensor, *, exact: bool
) -> Linearisation:
    """Expand field and running cost around ``(t, x)`` and the field's own parameters.

    Args:
        problem: The problem.
        t: Time.
        x: State, ``[m]``.
        Q_x: Adjoint, ``[m]``.
        exact: Whether ``bend`` takes in the second derivatives of F.

    Returns:
        The derivatives.

    Example:
        >>> class Field(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = torch.nn.Parameter(torch.tensor([3.0]))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> problem = FlatProblem.of(Field(), torch.ones(1), (0.0, 1.0))
        >>> point = torch.tensor(0.0), torch.tensor([2.0]), torch.tensor([5.0])
        >>> at = linearise(problem, *point, exact=True)
        >>> at.F_z, at.bend
        (tensor([[3., 2.]]), tensor([[0., 5.], [5., 0.]]))
    """
    m, size = problem.m, problem.m + problem.n
    costly = problem.running_cost is not None
    ell = x.new_zeros(1)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        wanted = (leaf, *problem.parameters)
        slope = outputs = problem.slope(t, leaf)
        bent: Tensor | None = Q_x @ slope if exact else None
        if costly:
            cost = problem.cost_rate(t, leaf)
            bent = cost if bent is None else bent + cost
            ell = cost.detach().reshape(1)
        g = None if bent is None else flat_gradient(bent, wanted)
        if g is not None:
            outputs = torch.cat([slope, g])
    rows = pull_back(outputs, wanted, torch.eye(len(outputs), dtype=x.dtype, device=x.device))
    F_z = rows[:m]
    if g is None:
        return Linearisation(slope.detach(), F_z, ell, F_z.mT @ Q_x, None)
    H_z = g.detach() if exact else g.detach() + F_z.mT @ Q_x
    bend = rows[m:]
    assert bend.shape == (size, size)
    return Linearisation(slope.detach(), F_z, ell, H_z, 0.5 * (bend + bend.mT))


def flat_gradient(value: Tensor, wanted: Sequence[Tensor]) -> Tensor:
    """The gradient of a number as one vector that can be differentiated again.

    Args:
        value: A 0-d tensor.
        wanted: Tensors to differentiate for.

    Returns:
        A vector, zero where the value does not depend on a tensor.
    """
    if not value.requires_grad:
        return torch.cat([torch.zeros_like(w).reshape(-1) for w in wanted])
    found = torch.autograd.grad(
        value, wanted, create_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.reshape(-1) for part in found])


def pull_back(outputs: Tensor, wanted: Sequence[Tensor], cotangents: Tensor) -> Tensor:
    """Pull many cotangents back through one tape at once.

    Args:
        outputs: A vector with a tape, ``[k]``.
        wanted: Tensors to differentiate for, N entries in all.
        cotangents: One a row, ``[R, k]``.

    Returns:
        One row each, ``[R, N]``.

    Example:
        >>> x = torch.tensor([2.0, 3.0], requires_grad=True)
        >>> pull_back(x * x, (x,), torch.eye(2))
        tensor([[4., 0.], [0., 6.]])
    """
    count = len(cotangents)
    if not outputs.requires_grad:
        return cotangents.new_zeros(count, sum(w.numel() for w in wanted))
    found = torch.autograd.grad(
        outputs, wanted, cotangents, is_grads_batched=True, allow_unused=True
    )
    parts = [
        cotangents.new_zeros(count, w.numel()) if g is None else g.reshape(count, -1)
        for g, w in zip(found, wanted, strict=True)
    ]
    return torch.cat(parts, dim=1)
