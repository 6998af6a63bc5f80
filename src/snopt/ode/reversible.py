r"""The asynchronous leapfrog and its exact inverse.

The state is a pair :math:`(x, v)` with :math:`v \approx \dot x`. A step of size :math:`h` is

.. math::
    x_m = x + \tfrac h2 v, \quad u = F(t + \tfrac h2, x_m), \quad
    v_1 = v + 2\eta (u - v), \quad x_1 = x_m + \tfrac h2 v_1 ,

and it can be undone: :math:`x_m = x_1 - \tfrac h2 v_1`, :math:`u = F(t + \tfrac h2, x_m)`,
:math:`v = (v_1 - 2\eta u) / (1 - 2\eta)`, :math:`x = x_m - \tfrac h2 v`. The order is two; each
direction takes one evaluation per step. The damping :math:`\eta` is above 0.5 and at most 1, the
undamped method.

References:
    Mutze: An asynchronous leap-frog method (2008).
    Zhuang, Dvornek, Tatikonda, Duncan: MALI, a memory efficient and reverse accurate
    integrator for Neural ODEs (2021), for the damped form with :math:`\eta < 1`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snopt.base.types import TensorField, time_tensor
from snopt.ode.interpolation import hermite
from snopt.ode.step import Tolerance, read_numbers


def leapfrog(x: Tensor, v: Tensor, u: Tensor, h: float, eta: float) -> tuple[Tensor, Tensor]:
    """Return state and velocity after a step, for the slope ``u`` at ``x + h v / 2``.

    Example:
        >>> one = torch.ones(1)
        >>> [part.item() for part in leapfrog(one, one, one, 0.5, 1.0)]
        [1.5, 1.0]
    """
    v1 = torch.lerp(v, u, 2.0 * eta)
    return torch.add(torch.add(x, v, alpha=0.5 * h), v1, alpha=0.5 * h), v1


def unleap(x_mid: Tensor, v1: Tensor, u: Tensor, h: float, eta: float) -> tuple[Tensor, Tensor]:
    """Return state and velocity before a step, for the slope ``u`` at ``x_mid = x1 - h v1 / 2``.

    Example:
        >>> x, v, u = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)
        >>> x1, v1 = leapfrog(x, v, u, 0.1, 1.0)
        >>> [round(part.item(), 6) for part in unleap(x1 - 0.05 * v1, v1, u, 0.1, 1.0)]
        [1.0, 2.0]
    """
    v = (v1 - 2.0 * eta * u) / (1.0 - 2.0 * eta)
    return torch.sub(x_mid, v, alpha=0.5 * h), v


class AsynchronousLeapfrog:
    """The leapfrog as a stepper for the time loop; an Euler step estimates its error.

    Attributes:
        v: velocity at the end of the accepted steps.
    """

    adaptive = True
    error_order = 2

    def __init__(self, field: TensorField, tolerance: Tolerance, eta: float = 1.0) -> None:
        self.field, self.tolerance, self.eta, self.nfe = field, tolerance, eta, 0
        self.v: Tensor | None = None
        self._tried: tuple[float, Tensor, Tensor, Tensor] | None = None

    def start(self, t: float, x: Tensor) -> None:
        """Start at ``(t, x)`` with the velocity from the field."""
        self.v = self._evaluate(t, x)
        self._x = x

    def guess(self, span: float) -> float:
        """Return a first step that changes the state by a hundredth of its scale."""
        assert self.v is not None
        scale, norm = self.tolerance.scale(self._x, self._x), self.tolerance.norm
        d0, d1 = read_numbers(norm(self._x / scale), norm(self.v / scale))
        h = 0.01 * d0 / d1 if d0 > 1e-5 and d1 > 1e-5 else 1e-3
        return min(h, abs(span)) if math.isfinite(h) and h > 0.0 else abs(span)

    def attempt(self, t: float, h: float, x: Tensor) -> tuple[Tensor, float]:
        """Try the signed step ``h``; return the new state and the error ratio."""
        assert self.v is not None
        u = self._evaluate(t + 0.5 * h, torch.add(x, self.v, alpha=0.5 * h))
        x1, v1 = leapfrog(x, self.v, u, h, self.eta)
        self._tried = (h, x, x1, v1)
        error = (u - self.v).mul_(h).div_(self.tolerance.scale(x, x1))
        return x1, float(self.tolerance.norm(error))

    def interpolate(self, theta: float) -> Tensor:
        """Return the state at ``t + theta * h`` of the last attempt, by a cubic."""
        assert self._tried is not None and self.v is not None
        h, x, x1, v1 = self._tried
        return hermite(theta, h, x, x1, self.v, v1)

    def accept(self) -> None:
        """Accept the last attempt."""
        assert self._tried is not None
        self.v = self._tried[3]

    def _evaluate(self, t: float, x: Tensor) -> Tensor:
        self.nfe += 1
        return self.field(time_tensor(t, x), x)
