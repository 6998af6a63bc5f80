"""Evaluations of a field that must leave no trace.

A solver evaluates a field many times in one forward pass of the model: for stages, for rejected
steps, for a first step. Hooks on layers must be able to tell these evaluations from the user's own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["preserving", "solver"]


class _Solver(threading.local):
    """Whether this thread is inside an evaluation that a solver asked for."""

    depth = 0


solver = _Solver()
"""Solvers raise ``solver.depth`` around each evaluation of a field and lower it after."""


@contextmanager
def preserving(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Leave random state and buffers as they were, whatever an extra evaluation does.

    Dropout then draws the same masks, and normalisation keeps the same running
    statistics, with and without recording. Hooks take the evaluation for a solver's.

    Example:
        >>> with preserving(nn.Dropout(), torch.device("cpu")):
        ...     before = torch.rand(1)
        >>> bool(torch.rand(1) == before)
        True
    """
    # Buffers are exchanged for copies, not written back: a graph alive elsewhere may hold the
    # originals, and autograd refuses tensors that were written to, even with the same values.
    kept = [(part, dict(part._buffers)) for part in module.modules() if part._buffers]
    for part, buffers in kept:
        for name, buffer in buffers.items():
            part._buffers[name] = None if buffer is None else buffer.clone()
    devices = [] if device.type == "cpu" else [device]
    solver.depth += 1
    try:
        with torch.random.fork_rng(devices=devices, device_type=device.type):
            yield
    finally:
        solver.depth -= 1
        for part, buffers in kept:
            part._buffers.update(buffers)
