r"""Continuous normalising flows: densities as the push-forward of a normal density.

One or several Neural ODEs carry a point x at time 0 to z at the horizon, where the density is
normal; the logarithm of the change of volume is integrated along the path:

.. math::
    \log p(x) = \log N(z; 0, \sigma^2 I) + \log\left|\det \frac{\partial z}{\partial x}\right|,
    \qquad
    \frac{d}{dt} \log\det = \mathrm{div} F(t, x).

The noise of an estimated divergence is part of the state, so several calls may precede one backward
pass, and an adjoint may repeat any of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.models.divergence import NOISE, draw_noise, estimated, exact
from snopt.models.fields import ConcatSquashField, HyperField
from snopt.ode.norms import Seminorm
from snopt.ode.options import controls_error

DIVERGENCES = ("exact", *NOISE)


class FlowField(nn.Module):
    """The field of one solve of a flow; the structure of the state selects the integrals.

    ==============================================  ===========================================
    state                                           derivative
    ==============================================  ===========================================
    ``x``                                           F
    ``(x, (log_det,))``                             F, exact divergence
    ``(x, (log_det,), noise)``                      F, estimated divergence, nothing
    ``(x, (log_det, kinetic, jacobian), ...)``      also the running costs ‖F‖² and ‖∂F/∂x‖²
    ==============================================  ===========================================

    Example:
        >>> field = FlowField(ConcatSquashField(2, (8,)))
        >>> x, zero = torch.zeros(5, 2), torch.zeros(5)
        >>> dx, (divergence,) = field(torch.tensor(0.0), (x, (zero,)))
        >>> dx.shape, divergence.shape
        (torch.Size([5, 2]), torch.Size([5]))
    """

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, state: State) -> State:
        """Evaluate the derivative of a state, in the same structure."""
        if isinstance(state, Tensor):
            return self.field(t, state)
        x, integrals, *noise = state
        jacobian = estimated(self.field, t, x, *noise) if noise else exact(self.field, t, x)
        kinetic = jacobian.value.square().flatten(1).sum(1)
        integrands = (jacobian.divergence, kinetic, jacobian.square)
        return (
            jacobian.value,
            integrands[: len(integrals)],
            *(torch.zeros_like(part) for part in noise),
        )


class Costs(NamedTuple):
    r"""Regularisers of Finlay et al. (2020), one number per sample.

    Attributes:
        kinetic: :math:`\int \|F\|^2 dt`.
        jacobian: :math:`\int \|\partial F / \partial x\|_F^2 dt`.
    """

    kinetic: Tensor
    jacobian: Tensor


class CNF(nn.Module):
    """A stack of Neural ODEs from a data density to a normal density.

    Args:
        dim: size of a point.
        hidden: sizes of the fields' hidden layers; default ``(64, 64)``, or ``(64,)`` for the
            hypernetwork's field, which has one hidden layer.
        activation: ``"tanh"`` or ``"softplus"``, of concat-squash fields.
        stacks: number of Neural ODEs.
        divergence: ``"exact"``, or Hutchinson's estimate with ``"rademacher"`` or
            ``"gaussian"`` noise, drawn once per solve.
        hypernetwork: use the hypernetwork's field instead of concat-squash layers.
        fields: user-defined fields, one per stack, instead of the built-in ones.
        kinetic: weight of the kinetic regulariser in :meth:`loss`.
        jacobian: weight of the Jacobian regulariser in :meth:`loss`.
        base_variance: variance of the normal density.
        horizon: end time of each Neural ODE.
        rtol: relative tolerance.
        atol: absolute tolerance.
        options: the solver's options.
        **solver: further arguments of :class:`snopt.NeuralODE`.

    Attributes:
        blocks: the :class:`snopt.NeuralODE` blocks, the one next to the data first.
        dim: size of a point.
        base_variance: variance of the normal density, in every direction.

    Example:
        >>> flow = CNF(2, hidden=(16,), rtol=1e-4, atol=1e-4)
        >>> x = flow.sample(5)
        >>> x.shape, flow.log_prob(x).shape
        (torch.Size([5, 2]), torch.Size([5]))
        >>> loss = flow.loss(x)     # minus the mean log-likelihood, plus weighted regularisers
        >>> loss.backward()
    """

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] | None = None,
        activation: str = "tanh",
        stacks: int = 1,
        *,
        divergence: str = "exact",
        hypernetwork: bool = False,
        fields: Sequence[nn.Module] | None = None,
        kinetic: float = 0.0,
        jacobian: float = 0.0,
        base_variance: float = 1.0,
        horizon: float = 1.0,
        rtol: Any = 1e-6,
        atol: Any = 1e-6,
        options: dict[str, Any] | None = None,
        **solver: Any,
    ) -> None:
        super().__init__()
        _check_divergence(divergence)
        if not 0.0 < base_variance < math.inf:
            raise ValueError(f"base_variance = {base_variance} must be a positive number.")
        self.dim, self.divergence, self.base_variance = dim, divergence, base_variance
        self.kinetic, self.jacobian = kinetic, jacobian
        if dim < 1:
            raise ValueError(f"dim = {dim} must be at least 1.")
        if fields is None:
            fields = _fields(dim, hidden, activation, stacks, hypernetwork)
        elif (hidden, activation, hypernetwork) != (None, "tanh", False) or (
            stacks not in (1, len(fields))
        ):
            raise ValueError(
                f"hidden = {hidden}, activation = {activation!r}, stacks = {stacks}, hypernetwork "
                f"= {hypernetwork} describe the built-in fields, but {len(fields)} fields were "
                "given; pass one or the other."
            )
        if not fields:
            raise ValueError(f"stacks = {len(fields)}: a flow needs at least one Neural ODE.")
        if controls_error(solver.get("method")):
            # Nothing depends on the running costs, so only x and log_det control the step size.
            options = {"norm": Seminorm(keep=2), **(options or {})}
        self.blocks = nn.ModuleList(
            NeuralODE(FlowField(field), horizon, rtol=rtol, atol=atol, options=options, **solver)
            for field in fields
        )

    def forward(
        self, x: Tensor, *, divergence: str | None = None, costs: bool = False
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Costs]:
        r"""Map points from the data density to the normal density.

        Args:
            x: points, (batch, dim).
            divergence: method for this call; default as in the constructor.
            costs: also measure the regularisers.

        Returns:
            z and :math:`\log \lvert \det \partial z / \partial x \rvert`, (batch); with ``costs``,
            also a :class:`Costs`.
        """
        return self._through(x, divergence, costs=costs, back=False)

    def inverse(self, z: Tensor, *, divergence: str | None = None) -> tuple[Tensor, Tensor]:
        r"""Map points back to the data density.

        Returns:
            x and :math:`\log \lvert \det \partial x / \partial z \rvert`, (batch).
        """
        return self._through(z, divergence, costs=False, back=True)  # type: ignore[return-value]

    def log_prob(self, x: Tensor, *, divergence: str | None = None) -> Tensor:
        """Return log-densities, (batch); unbiased estimates if the divergence is estimated."""
        z, log_det = self(x, divergence=divergence)  # a call, for the hooks of the model
        log_prob: Tensor = normal_log_prob(z, self.base_variance) + log_det
        return log_prob

    def loss(self, x: Tensor) -> Tensor:
        """Return the mean negative log-likelihood plus the weighted regularisers, 0-d."""
        if not (self.kinetic or self.jacobian):
            return -self.log_prob(x).mean()
        z, log_det, costs = self(x, costs=True)
        penalty = self.kinetic * costs.kinetic + self.jacobian * costs.jacobian
        loss: Tensor = (penalty - normal_log_prob(z, self.base_variance) - log_det).mean()
        return loss

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``count`` points, (count, dim)."""
        like = next(self.parameters(), torch.empty(0))  # a field may have no parameters
        x = torch.randn(count, self.dim, generator=generator, dtype=like.dtype, device=like.device)
        x = math.sqrt(self.base_variance) * x
        for block in reversed(self.blocks):
            x = block(x, (block.horizon, block.t0))[-1]
        return x

    def _through(
        self, x: Tensor, divergence: str | None, *, costs: bool, back: bool
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Costs]:
        kind = self.divergence if divergence is None else _check_divergence(divergence)
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise ValueError(f"points have shape {tuple(x.shape)}; expected (batch, {self.dim}).")
        integrals = (x.new_zeros(x.shape[0]),) * (3 if costs else 1)
        for block in reversed(self.blocks) if back else self.blocks:
            noise = () if kind == "exact" else (draw_noise(kind, x),)
            state = (x, integrals, *noise)
            if back:
                path = block(state, (block.horizon, block.t0))
                x, integrals = path[0][-1], tuple(part[-1] for part in path[1])
            else:
                x, integrals, *_ = block(state)
        return (x, integrals[0], Costs(*integrals[1:])) if costs else (x, integrals[0])


def normal_log_prob(z: Tensor, variance: float = 1.0) -> Tensor:
    """Return the log-density of the normal N(0, variance I), (batch).

    Example:
        >>> normal_log_prob(torch.zeros(1, 2))
        tensor([-1.8379])
    """
    constant = z.shape[1] * math.log(2.0 * math.pi * variance)
    return -0.5 * (z.square().sum(1) / variance + constant)


def _check_divergence(divergence: str) -> str:
    if divergence not in DIVERGENCES:
        raise unknown("divergence", divergence, DIVERGENCES)
    return divergence


def _fields(dim: int, hidden: Sequence[int] | None, activation: str, stacks: int,
            hypernetwork: bool) -> list[nn.Module]:  # fmt: skip
    if not hypernetwork:
        sizes = (64, 64) if hidden is None else hidden
        return [ConcatSquashField(dim, sizes, activation) for _ in range(stacks)]
    (width, *others) = (64,) if hidden is None else hidden
    if others or activation != "tanh":
        raise ValueError(
            f"hidden = {hidden}, activation = {activation!r}: the hypernetwork's field has one "
            "hidden layer with tanh."
        )
    return [HyperField(dim, width) for _ in range(stacks)]
