r"""Matrix-vector products through the steps that a solve took.

A Runge-Kutta step maps ``(x, u)`` to its end state :math:`x_1` and its stage states X, and adds
:math:`c(X, u) = h \sum_i b_i\, \ell(t_i, X_i, u)` to the cost. The total cost is a chain of such
maps. Tangents :math:`\delta x` are pushed forward along the chain; cotangents and their tangents
are pulled back,

.. math::
    (\lambda_0, g) = \nabla_{x,u} \bigl[ \lambda_1^\top x_1 + c \bigr], \qquad
    (\delta\lambda_0, \delta g) = \text{its derivative along } (\delta x, v_u, \delta\lambda_1),

one step at a time, so only one step is ever on a tape. For the Gauss-Newton matrix the
maps are linearised: :math:`\delta\lambda_1` and the curvature of c along :math:`\delta X` are
pulled back, and no :math:`\lambda` is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from snopt.ode.settings import Settings, check_times
from snopt.ode.solve import Step
from snopt.ode.tableau import Tableau
from snopt.second_order.derivatives import pullback, pushforward
from snopt.second_order.flat_problem import FlatProblem

__all__ = ["ADJOINTS", "Direction", "StepMap", "recorded_steps", "step_product", "terminal_tangent"]

#: How to differentiate a solve twice: through its steps, or by further ODEs.
ADJOINTS = ("checkpoint", "backsolve")
#: k directions in the space of states ``[k, m]`` and parameters ``[k, n]``.
Direction: TypeAlias = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class StepMap:
    """One step as a pure function of its start and the parameters.

    Attributes:
        problem: the problem.
        tableau: the method.
        t: start time.
        h: step size, signed.
        x: state at the start.
    """

    problem: FlatProblem
    tableau: Tableau
    t: float
    h: float
    x: Tensor

    def __call__(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return end state ``[m]`` and stage states ``[stages, m]``."""
        slopes: list[Tensor] = []
        stages: list[Tensor] = []
        for row, t in zip(self.tableau.a, self._times, strict=False):
            stages.append(self._combined(x, row, slopes))
            slopes.append(self.problem.F(t, stages[-1], u))
        return self._combined(x, self.tableau.b, slopes), torch.stack(stages)

    def cost(self, X: Tensor, u: Tensor) -> Tensor:
        """Return what the step with stage states X adds to the running cost."""
        total = X.new_zeros(())
        for weight, t, x in zip(self.tableau.b, self._times, X.unbind(0), strict=True):
            if weight != 0.0:
                total = total + (self.h * weight) * self.problem.running(t, x, u)
        return total

    @property
    def _times(self) -> list[Tensor]:
        c = self.tableau.c[: self.tableau.stages]
        return [self.problem.time(self.t + ci * self.h) for ci in c]

    def _combined(self, x: Tensor, weights: Sequence[float], slopes: Sequence[Tensor]) -> Tensor:
        for weight, k in zip(weights, slopes, strict=True):
            if weight != 0.0:
                x = x + (self.h * weight) * k
        return x


def step_product(problem: FlatProblem, direction: Direction, exact: bool) -> Tensor:
    """Return ``Q_zz v`` of the discretised problem for k directions, ``[k, m + n]``."""
    dx, v_u = direction
    steps, x1 = recorded_steps(problem)
    tangents = []
    for step in steps:
        tangents.append(dx)
        _, (dx, _) = pushforward(step, (step.x, problem.u), (dx, v_u))
    Q_x, dQ_x = terminal_tangent(problem, x1, dx)
    dg = torch.zeros_like(v_u)
    for step in reversed(steps):
        along = tangents.pop(), v_u
        if exact:
            Q_x, dQ_x, more = _pull_exact(step, along, Q_x, dQ_x)
        else:
            dQ_x, more = _pull_linear(step, along, dQ_x)
        dg = dg + more
    return torch.cat([dQ_x, dg], dim=1)


def terminal_tangent(problem: FlatProblem, x1: Tensor, dx1: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`\Phi_x` at the final state and :math:`\Phi_{xx}\, \delta x`, ``[k, m]``."""
    return pushforward(torch.func.grad(problem.terminal), (x1,), (dx1,))


def recorded_steps(problem: FlatProblem) -> tuple[list[StepMap], Tensor]:
    """Solve forward; return the accepted steps and the final state."""
    solver = problem.solver
    settings = Settings.parse(**vars(solver))
    tableau = settings.tableau
    if tableau is None or settings.grid_constructor is not None:
        raise ValueError(
            f"adjoint='checkpoint' cannot repeat the steps of method={solver.method!r} with "
            f"options={solver.options}; use adjoint='backsolve', or a native method "
            "without grid_constructor."
        )
    times = [problem.t0, problem.t1]
    check_times(times)
    steps: list[StepMap] = []

    def keep(step: Step) -> None:
        steps.append(StepMap(problem, tableau, step.t, step.h, step.x))

    with torch.no_grad():
        stepper = settings.stepper(problem.F, problem.x0, problem.packing)
        solution = settings.run(stepper, problem.x0, times, on_step=keep)
    return steps, solution.states[-1]


def _pull_exact(
    step: StepMap, along: Direction, Q_x: Tensor, dQ_x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the adjoint at the step's start, its tangents, and the tangents of the u-gradient."""

    def total(x: Tensor, u: Tensor, Q_x: Tensor) -> Tensor:
        x1, X = step(x, u)
        value = Q_x @ x1
        return value if step.problem.running_cost is None else value + step.cost(X, u)

    point = step.x, step.problem.u, Q_x
    (back, _), (dback, dg) = pushforward(torch.func.grad(total, (0, 1)), point, (*along, dQ_x))
    return back, dback, dg


def _pull_linear(step: StepMap, along: Direction, dQ_x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tangents for the linearised step, which needs no adjoint."""
    u = step.problem.u
    (_, X), pull = pullback(step, step.x, u)
    if step.problem.running_cost is None:
        none = torch.zeros_like(X)
        dx, dg = torch.func.vmap(lambda y: pull((y, none)))(dQ_x)
        return dx, dg
    _, (_, dX) = pushforward(step, (step.x, u), along)
    cost_z = torch.func.grad(step.cost, (0, 1))
    _, (bent_X, bent_u) = pushforward(cost_z, (X, u), (dX, along[1]))
    dx, dg = torch.func.vmap(lambda y, Y: pull((y, Y)))(dQ_x, bent_X)
    return dx, dg + bent_u
