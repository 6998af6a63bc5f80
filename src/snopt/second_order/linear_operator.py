"""Curvature as a SciPy ``LinearOperator``, so that its eigenvalues come from ``eigsh``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import nn

from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times
from snopt.second_order.integration import Solver
from snopt.second_order.products import Variable, vector_product

__all__ = ["curvature_operator"]

KINDS = {"hessian": True, "ggn": False}


def curvature_operator(
    field: nn.Module,
    x0: State,
    times: Times,
    terminal_cost: TerminalCost,
    running_cost: RunningCost | None = None,
    *,
    kind: Literal["hessian", "ggn"] = "hessian",
    wrt: Variable = "params",
    adjoint: str = "checkpoint",
    method: str = "dopri5",
    rtol: float = 1e-7,
    atol: float = 1e-9,
    options: dict[str, Any] | None = None,
) -> Any:
    """The Hessian or the Gauss-Newton matrix as a symmetric linear operator.

    Several columns at once (``operator @ matrix``) share one solve.

    Args:
        field: F, a module with ``forward(t, x)``.
        x0: Initial state, flattened to m entries.
        times: ``(t0, t1)``.
        terminal_cost: From the state at t1 to a number.
        running_cost: ``running_cost(t, x, params)``, or None.
        kind: ``"hessian"`` or ``"ggn"``.
        wrt: ``"params"``, ``"x0"`` or ``"both"``.
        adjoint: As for :func:`snopt.hessian_vector_product`.
        method: Any method of :func:`snopt.odeint`.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options.

    Returns:
        A ``scipy.sparse.linalg.LinearOperator`` of the state's dtype.

    Raises:
        UnknownName: An unknown kind.

    Example:
        >>> from scipy.sparse.linalg import eigsh
        >>> class Spin(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = nn.Linear(2, 2).double()
        ...     def forward(self, t, x):
        ...         return torch.tanh(self.linear(x))
        >>> x0 = torch.ones(3, 2, dtype=torch.float64)
        >>> operator = curvature_operator(Spin(), x0, (0.0, 1.0), lambda x: x.square().mean(),
        ...                               kind="ggn", rtol=1e-5)
        >>> operator.shape, bool(eigsh(operator, k=1)[0] > 0)
        ((6, 6), True)
    """
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost)
    solver = Solver(method, rtol, atol, options)
    size = {"params": problem.n, "x0": problem.m}.get(wrt, problem.m + problem.n)

    def multiply(columns: Any) -> Any:
        rows = torch.as_tensor(np.asarray(columns)).reshape(size, -1).mT
        found = vector_product(problem, solver, rows, wrt=wrt, adjoint=adjoint, exact=KINDS[kind])
        return found.mT.cpu().numpy().reshape(np.shape(columns))

    dtype = problem.x0.new_zeros(0).cpu().numpy().dtype
    return LinearOperator(
        (size, size), matvec=multiply, rmatvec=multiply, matmat=multiply, rmatmat=multiply,
        dtype=dtype,
    )  # fmt: skip
