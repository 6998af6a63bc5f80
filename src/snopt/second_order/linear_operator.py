"""Curvature as a SciPy ``LinearOperator``, for example to compute its eigenvalues by ``eigsh``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import nn

from snopt.base.errors import unknown
from snopt.base.types import State
from snopt.second_order.flat_problem import FlatProblem, RunningCost, TerminalCost, Times
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
    **solver: Any,
) -> Any:
    """Return the Hessian or the Gauss-Newton matrix as a symmetric linear operator.

    Several columns at once (``operator @ matrix``) share one solve. The arguments are those of
    :func:`snopt.hessian_vector_product`; ``kind`` chooses the matrix.

    Returns:
        a ``scipy.sparse.linalg.LinearOperator`` of the state's dtype.

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
    problem = FlatProblem.of(field, x0, times, terminal_cost, running_cost, **solver)
    size = {"params": problem.n, "x0": problem.m}.get(wrt, problem.m + problem.n)

    def multiply(columns: Any) -> Any:
        rows = torch.as_tensor(np.asarray(columns)).reshape(size, -1).mT
        found = vector_product(problem, rows, wrt=wrt, adjoint=adjoint, exact=KINDS[kind])
        return found.mT.cpu().numpy().reshape(np.shape(columns))

    dtype = problem.x0.new_zeros(0).cpu().numpy().dtype
    return LinearOperator(
        (size, size), matvec=multiply, rmatvec=multiply, matmat=multiply, rmatmat=multiply,
        dtype=dtype,
    )  # fmt: skip
