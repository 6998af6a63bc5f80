r"""Gradients with respect to the requested times, the same for every adjoint.

Moving an output time moves the output along the field, and moving the start has the effect of
moving the initial state back along it:

.. math::
    \frac{\partial x(t_i)}{\partial t_i} = F(t_i, x(t_i)), \qquad
    x(t; t_0 + \delta, x_0) = x\bigl(t; t_0, x_0 - \delta F(t_0, x_0)\bigr) + O(\delta^2).

Adding ``F * (t - t.detach())``, whose value is zero, therefore adds the whole gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.base.types import TensorField, real_dtype


def _shift(field: TensorField, x: Tensor, t: Tensor, higher: bool) -> Tensor:
    # The slope is recorded only where second derivatives may follow.
    with torch.set_grad_enabled(higher and torch.is_grad_enabled()):
        slope = field(t.detach().to(real_dtype(x.dtype)), x)
    return slope * (t - t.detach()).to(x.dtype)


def attach_start(field: TensorField, x0: Tensor, t: Tensor, *, higher: bool = False) -> Tensor:
    """Return the initial state, made to depend on the start time ``t[0]``."""
    return x0 - _shift(field, x0, t[0], higher)


def attach_outputs(field: TensorField, states: Sequence[Tensor], t: Tensor,
                   *, higher: bool = False) -> list[Tensor]:  # fmt: skip
    """Return the states, those after the first made to depend on their times.

    Example:
        >>> t = torch.tensor([0.0, 2.0], requires_grad=True)
        >>> x = torch.tensor([3.0])
        >>> out = attach_outputs(lambda t, x: 5 * x, [x, x], t)[1]
        >>> torch.autograd.grad(out.sum(), t)[0]
        tensor([ 0., 15.])
    """
    return [x + _shift(field, x, t[i], higher) if i else x for i, x in enumerate(states)]
