r"""Gradients with respect to the requested times, the same for every adjoint.

Moving an output time moves the output along the field, and moving the start is as if the
initial state had been moved back along it:

.. math::
    \frac{\partial x(t_i)}{\partial t_i} = F(t_i, x(t_i)), \qquad
    x(t; t_0 + \delta, x_0) = x\bigl(t; t_0, x_0 - \delta F(t_0, x_0)\bigr) + O(\delta^2).

So a term that is zero in value, ``F * (t - t.detach())``, carries the whole gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.base.types import TensorField, real_dtype


def _slope(field: TensorField, t: Tensor, x: Tensor, higher: bool) -> Tensor:
    """The field at an output, on the tape only where second derivatives may be asked for."""
    with torch.set_grad_enabled(higher and torch.is_grad_enabled()):
        return field(t.detach().to(real_dtype(x.dtype)), x)


def attach_start(field: TensorField, x0: Tensor, t: Tensor, *, higher: bool = False) -> Tensor:
    """Make the initial state depend on the start time.

    Args:
        field: The field on packed states.
        x0: Packed initial state.
        t: All requested times.
        higher: Whether second derivatives may be asked for.

    Returns:
        ``x0`` in value.
    """
    return x0 - _slope(field, t[0], x0, higher) * (t[0] - t[0].detach()).to(x0.dtype)


def attach_outputs(field: TensorField, states: Sequence[Tensor], t: Tensor,
                   *, higher: bool = False) -> list[Tensor]:  # fmt: skip
    """Make the states after the first depend on their times.

    Args:
        field: The field on packed states.
        states: Packed states at all requested times.
        t: The times.
        higher: Whether second derivatives may be asked for.

    Returns:
        The states in value.

    Example:
        >>> t = torch.tensor([0.0, 2.0], requires_grad=True)
        >>> x = torch.tensor([3.0])
        >>> out = attach_outputs(lambda t, x: 5 * x, [x, x], t)[1]
        >>> torch.autograd.grad(out.sum(), t)[0]
        tensor([ 0., 15.])
    """
    moved = [states[0]]
    for i in range(1, len(states)):
        slope = _slope(field, t[i], states[i], higher)
        moved.append(states[i] + slope * (t[i] - t[i].detach()).to(states[i].dtype))
    return moved
