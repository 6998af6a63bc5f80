r"""The recursive adjoint: second derivatives by differentiating the adjoint ODE again.

The gradient of a solve is another solve, of the augmented field ``eq:backward-ode``

.. math:: G(t, (x, a, g)) = (F,\; -F_x^\top a,\; -F_u^\top a)

from t1 to t0, parameters' gradient included in its state. A solve whose gradient is a solve can
be differentiated as often as one likes: each derivative adds one more solve on top, over a state
about twice as long, that starts from the rounded result of the one before. This is the baseline
that Theorem 1 is compared with. It is here to be measured; for derivatives of second order that
are to be used, see :mod:`snopt.second_order.products`, or ``adjoint="direct"``.

Functions of ``snopt`` take it as ``adjoint=Recursive()``; :func:`recursive_adjoint` switches the
blocks of an existing model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.adjoint.blocks import blocks_of
from snopt.adjoint.request import Adjoint, Request
from snopt.base.errors import GradientError
from snopt.base.packing import Packing
from snopt.base.types import TensorField
from snopt.ode.blackbox import solve_black_box
from snopt.ode.settings import Settings
from snopt.ode.solution import Solution, SolveStats

__all__ = ["Recursive", "Switched", "adjoint_field", "recursive_adjoint"]


class Switched:
    """Blocks whose adjoint was replaced; a ``with`` statement restores it at its end."""

    def __init__(self, adjoints: list[tuple[NeuralODE, Adjoint]]) -> None:
        self._adjoints = adjoints

    def remove(self) -> None:
        """Restore the adjoint of every block."""
        for block, adjoint in self._adjoints:
            block.adjoint = adjoint

    def __enter__(self) -> Switched:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def recursive_adjoint(model: nn.Module) -> Switched:
    """Switch every :class:`snopt.NeuralODE` of a model to the recursive adjoint.

    Afterwards ``create_graph=True`` works on the whole model to any order; each derivative of a
    block is one more ODE. Solver, tolerances and parameters stay the same.

    Args:
        model: a model, or a block.

    Returns:
        A handle; ``handle.remove()`` or the end of a ``with`` statement restores the adjoints.

    Raises:
        ValueError: the solver of a block cannot integrate the augmented states.

    Example:
        >>> block = NeuralODE(nn.Linear(2, 2))
        >>> block.field.forward = lambda t, x: torch.tanh(x @ block.field.weight)
        >>> with recursive_adjoint(block):
        ...     loss = block(torch.ones(3, 2)).square().sum()
        ...     (g,) = torch.autograd.grad(loss, block.field.weight, create_graph=True)
        ...     (Hv,) = torch.autograd.grad(g, block.field.weight, torch.ones(2, 2))
        >>> Hv.shape
        torch.Size([2, 2])
    """
    blocks = blocks_of(model)
    for block in blocks:
        _check(block)
    switched = Switched([(block, block.adjoint) for block in blocks])
    for block in blocks:
        block.adjoint = Recursive()
    return switched


class Recursive(Adjoint):
    """An adjoint whose backward pass is a solve that can be differentiated again.

    Example:
        >>> from snopt.adjoint import odeint
        >>> u = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
        >>> x1 = odeint(lambda t, x: u * x, torch.ones(1, dtype=torch.float64), (0.0, 1.0),
        ...             adjoint=Recursive(), adjoint_params=(u,), rtol=1e-9)[-1]
        >>> (g,) = torch.autograd.grad(x1.sum(), u, create_graph=True)
        >>> (h,) = torch.autograd.grad(g, u)        # the second derivative of exp(u)
        >>> round(h.item(), 5)
        1.64872
    """

    name = "recursive"

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve the ODE; each interval between two requested times is a separate solve.

        Args:
            request: the solve.
            x0: packed initial state.
            params: parameters to differentiate with respect to.

        Returns:
            States at the requested times, the initial one first.

        Raises:
            GradientError: an observer wants the nodes of the path.
        """
        if request.observer is not None:
            raise GradientError(
                "the recursive adjoint reports no quadrature nodes, but SNOpt or HorizonOptimizer "
                "observes this block; choose another adjoint for them"
            )
        forward: list[SolveStats] = []
        states, first_step = [x0], request.first_step
        for times in pairwise(request.times):
            solve = _Solve(
                request.field,
                request.packing,
                times,
                request.settings,
                first_step,
                forward.append,
                lambda stats: request.took_backward(stats.nfe_forward),
            )
            states.append(_RecursiveSolve.apply(solve, states[-1], *params))
            first_step = forward[-1].last_step
        request.took(_added(forward))
        return states


def adjoint_field(F: TensorField, shape: torch.Size, params: Sequence[Tensor]) -> TensorField:
    """Return the augmented field G of the module's docstring, which can be differentiated again.

    Args:
        F: field on states of shape ``shape``.
        shape: shape of the state.
        params: leaves that F depends on and that require a gradient.

    Returns:
        A field on the concatenated state ``(x, a, g)``.

    Example:
        >>> u = torch.tensor([3.0], requires_grad=True)
        >>> G = adjoint_field(lambda t, x: u * x, torch.Size([1]), [u])
        >>> G(torch.tensor(0.0), torch.tensor([2.0, 1.0, 0.0])).detach()
        tensor([ 6., -3., -2.])
    """
    m = shape.numel()

    def G(t: Tensor, state: Tensor) -> Tensor:
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            x, a = state[:m].view(shape), state[m : 2 * m].view(shape)
            if not (keep and x.requires_grad):
                x = x.detach().requires_grad_()
            slope = F(t, x)
            found = torch.autograd.grad(
                slope, (x, *params), a, create_graph=keep, materialize_grads=True
            )
            out = torch.cat([slope.reshape(-1), *(-part.reshape(-1) for part in found)])
        return out if keep else out.detach()

    return G


@dataclass(frozen=True)
class _Solve:
    """A field, an interval and a solver."""

    field: TensorField
    packing: Packing
    times: tuple[float, float]
    settings: Settings
    first_step: float | None = None
    took: Callable[[SolveStats], object] = lambda stats: None
    took_backward: Callable[[SolveStats], object] = lambda stats: None

    def run(self, x: Tensor) -> Solution:
        settings = self.settings
        if settings.black_box:
            return solve_black_box(settings, self.field, x, self.times, self.packing)
        stepper = settings.stepper(self.field, x, self.packing)
        return settings.run(stepper, x, self.times, first_step=self.first_step)

    def adjoint(
        self, shape: torch.Size, params: Sequence[Tensor], first_step: float | None
    ) -> _Solve:
        """Return the solve that is the gradient of this one; each part meets the tolerance."""
        sizes = (*self.packing.sizes * 2, sum(param.numel() for param in params))
        return _Solve(
            field=adjoint_field(self.field, shape, params),
            packing=Packing(tuple(torch.Size([size]) for size in sizes), sizes),
            times=self.times[::-1],
            settings=self.settings.replaced(norm=None),
            first_step=first_step,
            took=self.took_backward,
            took_backward=self.took_backward,
        )


class _RecursiveSolve(torch.autograd.Function):
    """A solve whose backward pass is a solve of the same kind."""

    @staticmethod
    def forward(ctx: Any, solve: _Solve, x: Tensor, *params: Tensor) -> Tensor:
        solution = solve.run(x)
        solve.took(solution.stats)
        x1 = solution.states[-1]
        # The backward solve starts with the last step size of the forward one.
        ctx.solve, ctx.step = solve, solution.stats.last_step
        ctx.save_for_backward(x1, *params)
        return x1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x1, *params = ctx.saved_tensors
        m, sizes = x1.numel(), [param.numel() for param in params]
        start = torch.cat([x1.reshape(-1), gradients[0].reshape(-1), x1.new_zeros(sum(sizes))])
        adjoint = ctx.solve.adjoint(x1.shape, params, ctx.step)
        end = _RecursiveSolve.apply(adjoint, start, *params)
        found = end[2 * m :].split(sizes)
        shaped = [part.view_as(param) for part, param in zip(found, params, strict=True)]
        return None, end[m : 2 * m].view_as(x1), *shaped


def _check(block: NeuralODE) -> None:
    settings = block._settings
    reason = None
    if block.adjoint.name == "reversible":
        reason = "adjoint='reversible' has a leapfrog of its own; choose a method such as dopri5"
    elif not all(isinstance(tol, int | float) for tol in (settings.rtol, settings.atol)):
        reason = (
            f"rtol={settings.rtol}, atol={settings.atol} do not fit the augmented state; give one "
            "number for all components"
        )
    elif settings.grid_constructor is not None:
        reason = "grid_constructor fits one solve only; use options={'step_size': ...}"
    if reason:
        raise ValueError(f"the recursive adjoint cannot use this block: {reason}")


def _added(counts: Sequence[SolveStats]) -> SolveStats:
    names = ("nfe_forward", "accepted", "rejected", "solves")
    sums = {name: sum(getattr(stats, name) for stats in counts) for name in names}
    return replace(counts[0], last_step=counts[-1].last_step, **sums)
