r"""The recursive adjoint: second derivatives by differentiating the adjoint ODE again.

The gradient of a solve is another solve, of the augmented field ``eq:backward-ode``

.. math:: G(t, (x, a, g)) = (F,\; -F_x^\top a,\; -F_u^\top a)

from t1 to t0, parameters' gradient included in its state. A solve whose gradient is a solve can
be differentiated as often as one likes: each derivative adds one more solve on top, over a state
about twice as long, that starts from the rounded result of the one before. This is the baseline
that Theorem 1 is compared with. It is here to be measured; for derivatives of second order that
are to be used, see :mod:`snopt.second_order.products`, or ``adjoint="direct"``.
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
from snopt.base.types import State, TensorField
from snopt.ode.blackbox import solve_black_box
from snopt.ode.settings import Settings
from snopt.ode.solution import Solution, SolveStats
from snopt.second_order.flat_problem import FlatProblem, TerminalCost, Times

__all__ = ["Switched", "recursive_adjoint", "recursive_gradient", "recursive_hessian_product"]


class Switched:
    """Blocks that had their adjoint changed; a ``with`` statement changes it back at its end."""

    def __init__(self, adjoints: list[tuple[NeuralODE, Adjoint]]) -> None:
        """Remember what the blocks did before."""
        self._adjoints = adjoints

    def remove(self) -> None:
        """Give every block its own adjoint again."""
        for block, adjoint in self._adjoints:
            block.adjoint = adjoint

    def __enter__(self) -> Switched:
        """Enter a ``with`` statement."""
        return self

    def __exit__(self, *error: object) -> None:
        """Undo the change."""
        self.remove()


def recursive_adjoint(model: nn.Module) -> Switched:
    """Have every :class:`snopt.NeuralODE` of a model differentiated by the recursive adjoint.

    From now on, ``create_graph=True`` works on the whole model, as often as one likes, and each
    derivative of a block is an ODE of its own. Solver, tolerances and parameters stay.

    Args:
        model: The model, or a block.

    Returns:
        A handle: ``handle.remove()``, or the end of a ``with`` statement, undoes it.

    Raises:
        ValueError: A block whose solver has no meaning on the augmented states.

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


def recursive_gradient(
    field: nn.Module, x0: State, times: Times, terminal_cost: TerminalCost, **solver: Any
) -> Tensor:
    """The gradient in the parameters by the adjoint method as first published.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: From the state at t1 to a number.
        **solver: ``method``, ``rtol``, ``atol``, ``options``.

    Returns:
        The gradient, ``[n]``.

    Example:
        >>> class Field(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(2, 2)
        ...     def forward(self, t, x):
        ...         return self.linear(x)
        >>> recursive_gradient(Field(), torch.ones(2), (0.0, 1.0), lambda x: x.sum()).shape
        torch.Size([6])
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost)
    u = problem.u.clone().requires_grad_()
    return _gradient(problem, _settings(**solver), u, create_graph=False)


def recursive_hessian_product(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    v: Tensor,
    **solver: Any,
) -> Tensor:
    """The Hessian in the parameters times vectors, by the adjoint of the adjoint.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: From the state at t1 to a number.
        v: One vector ``[n]`` or several ``[k, n]``; each takes a solve of its own.
        **solver: ``method``, ``rtol``, ``atol``, ``options``.

    Returns:
        The products, shaped as ``v``.

    Example:
        >>> class Growth(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.u = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        ...     def forward(self, t, x):
        ...         return self.u * x
        >>> x0 = v = torch.ones(1, dtype=torch.float64)
        >>> cost = lambda x: 0.5 * x.square().sum()
        >>> round(recursive_hessian_product(Growth(), x0, (0.0, 1.0), cost, v).item(), 5)
        2.0
    """
    problem = FlatProblem.of(field, x0, times, terminal_cost)
    u = problem.u.clone().requires_grad_()
    gradient = _gradient(problem, _settings(**solver), u, create_graph=True)
    rows = [
        torch.autograd.grad(gradient, u, row, retain_graph=True)[0]
        for row in v.detach().to(u).reshape(-1, problem.n)
    ]
    return torch.stack(rows).reshape(v.shape)


def _settings(
    method: str = "dopri5",
    rtol: float = 1e-7,
    atol: float = 1e-9,
    options: dict[str, Any] | None = None,
) -> Settings:
    return Settings.parse(method, rtol, atol, options)


def _gradient(problem: FlatProblem, settings: Settings, u: Tensor, *, create_graph: bool) -> Tensor:
    """The gradient in u, itself differentiable if asked."""
    with torch.enable_grad():
        solve = _Solve(
            field=lambda t, x: problem.F(t, x, u),
            packing=Packing.of(problem.x0),
            times=(problem.t0, problem.t1),
            settings=settings,
        )
        cost = problem.terminal(_RecursiveSolve.apply(solve, problem.x0, u))
        return torch.autograd.grad(cost, u, create_graph=create_graph)[0]


class Recursive(Adjoint):
    """An adjoint whose backward pass is a solve that can be differentiated again."""

    name = "recursive"

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve with the recursive adjoint.

        Each interval between two requested times is a solve of its own.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            States at the requested times, the initial one first.

        Raises:
            GradientError: Somebody wants to observe the path.
        """
        if request.observer is not None:
            raise GradientError(
                "the recursive adjoint tells no observer of its path, and SNOpt or "
                "HorizonOptimizer has set one; choose another adjoint for them"
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
    """The augmented field G of the module's docstring, differentiable again.

    Args:
        F: A field on states of a shape.
        shape: The shape.
        params: What F depends on besides; leaves that require a gradient.

    Returns:
        A field on states ``(x, a, g)`` laid end to end.

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
    """A field, from one time to another, by a solver."""

    field: TensorField
    packing: Packing
    times: tuple[float, float]
    settings: Settings
    first_step: float | None = None
    took: Callable[[SolveStats], object] = lambda stats: None
    took_backward: Callable[[SolveStats], object] = lambda stats: None

    def run(self, x: Tensor) -> Solution:
        """Solve from a packed state."""
        settings = self.settings
        if settings.black_box:
            return solve_black_box(settings, self.field, x, self.times, self.packing)
        stepper = settings.stepper(self.field, x, self.packing)
        return settings.run(stepper, x, self.times, first_step=self.first_step)

    def adjoint(
        self, shape: torch.Size, params: Sequence[Tensor], first_step: float | None
    ) -> _Solve:
        """The solve that is this one's gradient; every part is held to the tolerance by itself."""
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
        """Solve without a tape."""
        solution = solve.run(x)
        solve.took(solution.stats)
        x1 = solution.states[-1]
        # The way back opens with the step that the way there ended with.
        ctx.solve, ctx.step = solve, solution.stats.last_step
        ctx.save_for_backward(x1, *params)
        return x1

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Solve the augmented field back to the start."""
        x1, *params = ctx.saved_tensors
        m, sizes = x1.numel(), [param.numel() for param in params]
        start = torch.cat([x1.reshape(-1), gradients[0].reshape(-1), x1.new_zeros(sum(sizes))])
        adjoint = ctx.solve.adjoint(x1.shape, params, ctx.step)
        end = _RecursiveSolve.apply(adjoint, start, *params)
        found = end[2 * m :].split(sizes)
        shaped = [part.view_as(param) for part, param in zip(found, params, strict=True)]
        return None, end[m : 2 * m].view_as(x1), *shaped


def _check(block: NeuralODE) -> None:
    """Refuse what a solver of the user's states cannot mean for the augmented ones."""
    settings = block._settings
    if block.adjoint.name == "reversible":
        raise ValueError(
            "a block has adjoint='reversible': its leapfrog is an adjoint of its own; for the "
            "recursive one choose another method, such as dopri5"
        )
    if not all(isinstance(tol, int | float) for tol in (settings.rtol, settings.atol)):
        raise ValueError(
            f"rtol={settings.rtol}, atol={settings.atol}: the states of a recursive adjoint have "
            "parts of their own; give one number for all"
        )
    if settings.grid_constructor is not None:
        raise ValueError(
            "a grid_constructor is for the times of one solve, and a recursive adjoint makes many; "
            "use options={'step_size': ...}"
        )


def _added(counts: Sequence[SolveStats]) -> SolveStats:
    """The counts of consecutive solves as those of one."""
    total = replace(counts[0], last_step=counts[-1].last_step)
    for stats in counts[1:]:
        total.nfe_forward += stats.nfe_forward
        total.accepted += stats.accepted
        total.rejected += stats.rejected
        total.solves += stats.solves
    return total
