"""Where the time of one call goes: operators by kind of work, and Python around them.

torch's profiler slows down what it measures, so read the shares, not the seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

KINDS = {
    "matrix products": ("addmm", "mm", "bmm", "matmul", "linear"),
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
TOP = 6


def kind(operator: str) -> str:
    """Return the kind of work of an operator: ``kind("aten::addmm") == "matrix products"``."""
    if "convolution" in operator:  # under any backend's name
        return "matrix products"
    if operator.startswith(("Torch-Compiled", "CompiledFunction", "## Call")):
        return "compiled code"
    library, _, name = operator.partition("::")
    if library == "aten":
        return next((each for each, names in KINDS.items() if name in names), "elementwise")
    if library == "autograd" or re.search(r"Backward\d+$", operator):
        return "autograd's bookkeeping"
    return PYTHON  # the adjoint's own autograd function


def by_kind(run: Callable[[], object]) -> dict[str, Any]:
    """Call once under the profiler.

    Returns:
        The seconds that passed, the share of each kind of work, the number of operator calls and
        the longest operators with their calls and shares.
    """
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
    shares = {e.key: 1e-6 * e.self_cpu_time_total / seconds for e in watched.key_averages()}
    calls = {event.key: event.count for event in watched.key_averages()}
    kinds: dict[str, float] = {}
    for name, share in shares.items():
        kinds[kind(name)] = kinds.get(kind(name), 0.0) + share
    kinds[PYTHON] = kinds.get(PYTHON, 0.0) + max(0.0, 1.0 - sum(kinds.values()))
    ranked = sorted(shares, key=shares.__getitem__, reverse=True)[:TOP]
    return {
        "seconds": seconds,
        "calls": sum(count for name, count in calls.items() if name.startswith("aten::")),
        "kinds": kinds,
        "top": [[name, calls[name], shares[name]] for name in ranked],
    }
