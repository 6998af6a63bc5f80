"""The contenders: ways to integrate a workload's field and differentiate the solve.

Each contender creates a ``flow`` for a workload; a :class:`Trial` is one contender on its own copy
of one workload.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torchdiffeq
from torch import Tensor

from benchmarks.engine.cases import Flow, Gradients, Workload, build

BASELINE = "torchdiffeq_adjoint"

#: Iterations before anything is measured: a step size carried from call to call settles in them.
SETTLING = 6


def _torchdiffeq(integrate: Callable[..., object], workload: Workload) -> Flow:
    times = torch.tensor([0.0, 1.0], dtype=workload.inputs.dtype)
    tolerances = {"rtol": workload.tolerance, "atol": workload.tolerance}

    def flow(x: object) -> object:
        path = integrate(workload.field, x, times, method="dopri5", **tolerances)
        return tuple(part[-1] for part in path) if isinstance(path, tuple) else path[-1]

    return flow


def snopt_flow(
    workload: Workload, adjoint: Any, compiled: bool = False, method: str | None = "dopri5"
) -> Flow:
    """Return a block of this package."""
    import snopt

    return snopt.NeuralODE(
        workload.field,
        1.0,
        rtol=workload.tolerance,
        atol=workload.tolerance,
        method=method,
        adjoint=adjoint,
        compile=compiled,
    )


Makers = dict[str, Callable[[Workload], Flow]]

CONTENDERS: Makers = {
    BASELINE: partial(_torchdiffeq, torchdiffeq.odeint_adjoint),
    "torchdiffeq_direct": partial(_torchdiffeq, torchdiffeq.odeint),
    "snopt_checkpoint": partial(snopt_flow, adjoint="checkpoint"),
    "snopt_backsolve": partial(snopt_flow, adjoint="backsolve"),
    "snopt_compiled": partial(snopt_flow, adjoint="checkpoint", compiled=True),
}


class Trial:
    """One contender on its own copy of one workload.

    Args:
        contender: a key of ``makers``.
        case: a key of :data:`benchmarks.engine.cases.CASES`.
        form: form of the field.
        makers: functions that create the flow.
    """

    def __init__(self, contender: str, case: str, form: str, makers: Makers = CONTENDERS) -> None:
        self.compiled = contender.endswith("compiled")
        self.workload = build(case, form)
        self.flow = makers[contender](self.workload)
        self.inputs = self.workload.inputs.clone().requires_grad_()

    def forward(self) -> Tensor:
        """Clear the gradients and return the loss."""
        self.workload.zero_grad(set_to_none=True)
        self.inputs.grad = None
        return self.workload(self.flow, self.inputs)

    def evaluate(self) -> Tensor:
        """Return the loss alone."""
        with torch.no_grad():
            return self.workload(self.flow, self.inputs)

    def run(self) -> None:
        """Run forward and backward pass."""
        self.forward().backward()

    def gradients(self) -> Gradients:
        """Return the gradients of the latest run."""
        return self.workload.gradients(self.inputs)

    def settled(self) -> Trial:
        """Run until nothing changes from one iteration to the next, and return the trial."""
        for _ in range(SETTLING):
            self.run()
        return self

    def evaluations(self) -> tuple[int, int]:
        """Count calls of the field in the forward and in the backward pass."""
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        if self.compiled:  # hooks do not see a compiled field; its solver counts
            self.flow.totals.reset()
            self.run()
            return self.flow.totals.nfe_forward, self.flow.totals.nfe_backward
        handle = self.workload.field.register_forward_pre_hook(count)
        try:
            loss = self.forward()
            forward, calls = calls, 0
            loss.backward()
        finally:
            handle.remove()
        return forward, calls
