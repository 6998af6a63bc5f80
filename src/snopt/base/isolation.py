"""Evaluations of a field without side effects.

A solver evaluates a field many times per forward pass of the model: for stages, rejected steps and
first-step guesses. Hooks on layers must be able to tell these evaluations from the user's own. A
second evaluation, in a backward pass or by an observer, must draw the same random numbers as the
first and leave the random state and the buffers unchanged.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FunctionType

import torch
from torch import Tensor, nn

from snopt.base.types import TensorField


class _Solver(threading.local):
    depth = 0


solver = _Solver()
"""``solver.depth`` is positive while a solver of this thread evaluates a field."""


class RandomState:
    """A snapshot of torch's random generators, of the CPU and of one device.

    Example:
        >>> state = RandomState(torch.device("cpu"))
        >>> before = torch.rand(1)
        >>> state.moved()
        True
        >>> state.restore()
        >>> bool(torch.rand(1) == before)
        True
    """

    __slots__ = ("_cpu", "_device", "_own")

    def __init__(self, device: torch.device) -> None:
        self._cpu = torch.default_generator.get_state()
        self._device, self._own = device, None
        if device.type not in ("cpu", "meta"):
            self._own = torch.get_device_module(device).get_rng_state(device)

    def restore(self) -> None:
        """Set the generators to this state."""
        torch.default_generator.set_state(self._cpu)
        if self._own is not None:
            torch.get_device_module(self._device).set_rng_state(self._own, self._device)

    def differs(self, other: RandomState) -> bool:
        """Return whether random numbers were drawn between two snapshots."""
        if not _equal(self._cpu, other._cpu):
            return True
        return self._own is not None and not _equal(self._own, other._own)

    def moved(self) -> bool:
        """Return whether random numbers were drawn since this snapshot."""
        return self.differs(RandomState(self._device))


def _equal(a: Tensor, b: Tensor | None) -> bool:
    # The states are bytes; comparing them as 64-bit words is faster.
    return b is not None and torch.equal(a.view(torch.int64), b.view(torch.int64))


@contextmanager
def private_buffers(module: nn.Module) -> Iterator[None]:
    """Let a module work on copies of its buffers inside the ``with`` block.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with private_buffers(norm):
        ...     _ = norm(torch.ones(3, 2))
        >>> norm.num_batches_tracked
        tensor(0)
    """
    # The originals are never written to: a graph may hold them, and autograd refuses tensors that
    # were modified, even if the values are the same.
    kept = [(part, dict(part._buffers)) for part in module.modules() if part._buffers]
    for part, buffers in kept:
        for name, buffer in buffers.items():
            part._buffers[name] = None if buffer is None else buffer.clone()
    try:
        yield
    finally:
        for part, buffers in kept:
            part._buffers.update(buffers)


def modules_of(field: object) -> list[nn.Module]:
    """Return the modules that a module, a bound method or a function refers to.

    Example:
        >>> linear = nn.Linear(2, 2)
        >>> modules_of(lambda t, x: linear(x)) == modules_of(linear) == [linear]
        True
    """
    if isinstance(field, partial):
        return modules_of(field.func)
    owner = field if isinstance(field, nn.Module) else getattr(field, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    if not isinstance(field, FunctionType):
        return []
    named = inspect.getclosurevars(field)
    found = {**named.globals, **named.nonlocals}.values()
    return list(dict.fromkeys(value for value in found if isinstance(value, nn.Module)))


@contextmanager
def preserving(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore random state and buffers after an extra evaluation.

    Dropout then draws the same masks, and normalisation keeps the same running statistics, with
    and without recording. Hooks treat the evaluation as one of the solver's.

    Example:
        >>> with preserving(nn.Dropout(), torch.device("cpu")):
        ...     before = torch.rand(1)
        >>> bool(torch.rand(1) == before)
        True
    """
    state = RandomState(device)
    solver.depth += 1
    try:
        with private_buffers(module):
            yield
    finally:
        solver.depth -= 1
        state.restore()


class Again:
    """A field on packed states for evaluations after the forward pass.

    Each evaluation restores the random state. From the first one to the end of the ``with`` block,
    the modules of ``owner`` (the user's field) work on copies of their buffers. The block runs
    under autocast to ``autocast``, if that is not None.
    """

    def __init__(self, field: TensorField, owner: object, device: torch.device,
                 autocast: torch.dtype | None) -> None:  # fmt: skip
        self._field, self._device, self._autocast = field, device, autocast
        self._owner, self._scope = owner, ExitStack()

    def __enter__(self) -> Again:
        if self._autocast is not None:
            self._scope.enter_context(torch.autocast(self._device.type, dtype=self._autocast))
        return self

    def __exit__(self, *failure: object) -> None:
        self._scope.close()

    def isolate(self) -> None:
        """Replace the buffers now, for an evaluation that does not go through this object."""
        if self._owner is not None:
            for module in modules_of(self._owner):
                self._scope.enter_context(private_buffers(module))
            self._owner = None

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field without changing the random state."""
        return self._evaluate(t, x, None)

    def at(self, state: RandomState) -> TensorField:
        """Return the field for one evaluation that draws its random numbers from ``state``."""
        return lambda t, x: self._evaluate(t, x, state)

    def _evaluate(self, t: Tensor, x: Tensor, state: RandomState | None) -> Tensor:
        self.isolate()
        now = RandomState(self._device)
        try:
            if state is not None:
                state.restore()
            return self._field(t, x)
        finally:
            now.restore()
