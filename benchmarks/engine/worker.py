"""What a process of :mod:`benchmarks.engine.against` does: iterations of workloads with its tree.

Old versions of the package work too: only calls of ``snopt.NeuralODE`` are used.
"""

from __future__ import annotations

import gc
import time
from functools import cache
from typing import Any

from torch import Tensor

import snopt
from benchmarks.engine.contenders import Trial

WORKLOADS = {
    "image": ("snopt_checkpoint", "image", "plain"),
    "ode_rnn": ("snopt_checkpoint", "ode_rnn", "plain"),
    "ode_rnn_compiled": ("snopt_compiled", "ode_rnn", "plain"),
    "cnf_miniboone_small": ("snopt_checkpoint", "cnf_miniboone_small", "autograd"),
    "cnf_gas": ("snopt_checkpoint", "cnf_gas", "tangent"),
}
"""Contender, case and form."""


class Plain(Trial):
    """A trial that only calls the block: ``NeuralODE.then`` is not in every version."""

    def forward(self) -> Tensor:
        """Clear the gradients and return the loss."""
        self.workload.zero_grad(set_to_none=True)
        self.inputs.grad = None
        return self.workload(self.flow.__call__, self.inputs)


def package() -> str:
    """Return the file of the package that this process has loaded."""
    return snopt.__file__


@cache
def prepared(workload: str) -> Plain:
    """Create a workload and let its step size settle."""
    return Plain(*WORKLOADS[workload]).settled()


def described(workload: str) -> dict[str, Any]:
    """Return the loss and the evaluations of one iteration, or why it cannot run."""
    try:
        trial = prepared(workload)
        return {"evaluations": trial.evaluations(), "loss": float(trial.forward().detach())}
    except Exception as error:  # noqa: BLE001 - an older tree may fail in any way
        return {"error": f"{type(error).__name__}: {error}"}


def seconds(workload: str) -> float:
    """Return the CPU seconds of one iteration."""
    trial = prepared(workload)
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        trial.run()
        return time.process_time() - start
    finally:
        gc.enable()
