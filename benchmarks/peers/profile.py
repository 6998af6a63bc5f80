"""Where the time of an iteration of the eager engine goes: operators, and Python around them.

``python -m benchmarks.peers --parts profile`` measures it. The wall time is taken without a
profiler. torch's profiler then measures the operators' own time, and cProfile that of the Python
functions. Both slow down what they measure, so read the shares, not the seconds.
"""

from __future__ import annotations

import cProfile
import pstats
import re
import time
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

import snopt
from benchmarks.peers.engines import TorchTrial, form_of
from snopt.lab.paper.timing import summary

SOURCES = Path(snopt.__file__).parent
UNITS = {"ode_rnn": ("interval", 92), "cnf_gas": ("accepted step", None)}
"""What an iteration is divided into, and into how many; None: as many as the solver accepts."""
KINDS = {
    "matrix products": ("addmm", "mm", "bmm", "matmul", "linear", "convolution"),
    "copies and allocation": (
        "copy_", "clone", "cat", "stack", "empty", "empty_like", "empty_strided", "zeros",
        "zeros_like", "new_zeros", "resize_", "to", "_to_copy", "contiguous", "fill_", "zero_",
        "ones_like", "new_empty", "new_empty_strided", "split_with_sizes",
    ),
    "views": (
        "view", "reshape", "t", "transpose", "as_strided", "slice", "select", "expand", "detach",
        "detach_", "unsqueeze", "squeeze", "permute", "split", "narrow", "unbind", "alias",
        "_unsafe_view", "_reshape_alias",
    ),
    "reductions": ("sum", "mean", "amax", "max", "linalg_vector_norm", "norm", "any", "all"),
    "reading a number": ("item", "_local_scalar_dense", "is_nonzero"),
}  # fmt: skip
PYTHON = "Python around the operators"
TOP = 8


def kind(operator: str) -> str:
    """Return the kind of work of an operator: ``kind("aten::addmm") == "matrix products"``."""
    library, _, name = operator.partition("::")
    if library == "aten":
        return next((each for each, names in KINDS.items() if name in names), "elementwise")
    if library == "autograd" or re.search(r"Backward\d+$", operator):
        return "autograd's bookkeeping"
    return PYTHON  # the adjoint's own autograd function


def _wall(trial: TorchTrial, repeats: int) -> dict[str, Any]:
    forward, backward = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        loss = trial.forward()
        middle = time.perf_counter()
        loss.backward()
        forward.append(middle - start)
        backward.append(time.perf_counter() - middle)
    return {"forward": summary(forward), "backward": summary(backward)}


def _operators(trial: TorchTrial) -> dict[str, Any]:
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        start = time.perf_counter()
        trial.run()
        wall = 1e6 * (time.perf_counter() - start)
    events = watched.key_averages()
    shares: dict[str, float] = {}
    for event in events:
        shares[kind(event.key)] = shares.get(kind(event.key), 0.0) + event.self_cpu_time_total
    ranked = sorted(events, key=lambda event: -event.self_cpu_time_total)[:TOP]
    shares[PYTHON] = shares.get(PYTHON, 0.0) + max(0.0, wall - sum(shares.values()))
    return {
        "calls": sum(event.count for event in events if event.key.startswith("aten::")),
        "kinds": {name: spent / wall for name, spent in shares.items()},
        "top": [[each.key, each.count, each.self_cpu_time_total / wall] for each in ranked],
    }


def _functions(trial: TorchTrial) -> list[list[Any]]:
    watched = cProfile.Profile()
    watched.runcall(trial.run)
    found = pstats.Stats(watched).stats  # type: ignore[attr-defined]
    total = sum(own for _, _, own, _, _ in found.values())
    ours = [
        [f"{Path(file).relative_to(SOURCES)}:{name}", calls, own / total]
        for (file, _, name), (_, calls, own, _, _) in found.items()
        if file.startswith(str(SOURCES))
    ]
    return sorted(ours, key=lambda row: -row[2])[:TOP]


def measure(case: str, budget: float) -> dict[str, Any]:
    """Profile one workload; ``budget`` only bounds the unwatched iterations."""
    trial = TorchTrial("snopt_checkpoint", case, form_of(case))
    trial.settle()
    wall = _wall(trial, repeats=max(3, min(11, int(budget / 2))))
    unit, count = UNITS[case]
    count = count or trial.flow.stats.accepted
    evaluations = trial.evaluations()
    return {
        "unit": unit,
        "units": count,
        "seconds": wall,
        "evaluations": evaluations,
        "operators": _operators(trial),
        "functions": _functions(trial),
    }
