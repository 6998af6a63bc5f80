"""Run iterations of workloads on request, for :mod:`benchmarks.engine.against`.

A request is the name of a workload as a line of JSON. The first answer for a workload has its loss
and the evaluations of the field, after a few iterations to settle; later ones have the CPU seconds
of one iteration. Old versions of the package work too: only calls of ``snopt.NeuralODE`` are used.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import Any

import torch
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


def prepared(workload: str) -> tuple[Plain, dict[str, Any]]:
    """Create a workload, let its step size settle, and describe one iteration."""
    trial = Plain(*WORKLOADS[workload])
    trial.settle()
    return trial, {"evaluations": trial.evaluations(), "loss": float(trial.forward().detach())}


def seconds(trial: Trial) -> float:
    """Return the CPU seconds of one iteration."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        trial.run()
        return time.process_time() - start
    finally:
        gc.enable()


def main() -> None:
    """Answer until there are no more requests."""
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # other output is not an answer

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    answer({"package": snopt.__file__})
    trials: dict[str, Plain] = {}
    for line in sys.stdin:
        workload = json.loads(line)
        try:
            if workload in trials:
                answer({"seconds": seconds(trials[workload])})
            else:
                trials[workload], first = prepared(workload)
                answer(first)
        except Exception as error:  # noqa: BLE001 - an older tree may fail in any way
            answer({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
