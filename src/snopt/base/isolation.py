"""Evaluations of a field that must leave no trace.

A solver evaluates a field many times in one forward pass of the model: for stages, for rejected
steps, for a first step. Hooks on layers must be able to tell these evaluations from the user's own.
Where a field is evaluated again, in a backward pass or by an observer, it must draw the random
numbers of the first time and change neither the random state nor its buffers.
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

__all__ = ["Again", "RandomState", "modules_of", "preserving", "private_buffers", "solver"]


class _Solver(threading.local):
    """Whether this thread is inside an evaluation that a solver asked for."""

    depth = 0


solver = _Solver()
"""Solvers raise ``solver.depth`` around each evaluation of a field and lower it after."""


class RandomState:
    """The states of torch's generators, of the CPU and of one device, at one moment.

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
        """Read the generators.

        Args:
            device: The device whose generator counts besides the CPU's.
        """
        self._cpu = torch.default_generator.get_state()
        self._device, self._own = device, None
        if device.type != "cpu":
            self._own = torch.get_device_module(device).get_rng_state(device)

    def restore(self) -> None:
        """Set the generators back to this state."""
        torch.default_generator.set_state(self._cpu)
        if self._own is not None:
            torch.get_device_module(self._device).set_rng_state(self._own, self._device)

    def differs(self, other: RandomState) -> bool:
        """Whether random numbers were drawn between two states.

        Args:
            other: The other state, of the same device.

        Returns:
            Whether they differ.
        """
        if not _equal(self._cpu, other._cpu):
            return True
        return self._own is not None and not _equal(self._own, other._own)

    def moved(self) -> bool:
        """Whether random numbers were drawn since.

        Returns:
            Whether the generators are in another state now.
        """
        return self.differs(RandomState(self._device))


def _equal(a: Tensor, b: Tensor | None) -> bool:
    """Whether two generator states, of bytes, are equal; in words of eight, which is faster."""
    return b is not None and torch.equal(a.view(torch.int64), b.view(torch.int64))


@contextmanager
def private_buffers(module: nn.Module) -> Iterator[None]:
    """Let a module work on copies of its buffers.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with private_buffers(norm):
        ...     _ = norm(torch.ones(3, 2))
        >>> norm.num_batches_tracked
        tensor(0)
    """
    # Buffers are exchanged for copies, not written back: a graph alive elsewhere may hold the
    # originals, and autograd refuses tensors that were written to, even with the same values.
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
    """The modules that a field consists of.

    Args:
        field: A module, a method of one, or a function.

    Returns:
        The module, or those that the function refers to by name.

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
    """Leave random state and buffers as they were, whatever an extra evaluation does.

    Dropout then draws the same masks, and normalisation keeps the same running
    statistics, with and without recording. Hooks take the evaluation for a solver's.

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
    """A field on packed states for evaluations beyond those of the forward pass.

    They draw from a random state that is put back after each, and from the first one on the field
    works on copies of its buffers.
    """

    def __init__(self, field: TensorField, owner: object, device: torch.device,
                 scope: ExitStack) -> None:  # fmt: skip
        """Wrap a field.

        Args:
            field: The field on packed states.
            owner: What the user gave as field, whose buffers are kept.
            device: The state's device.
            scope: Until its end the field works on copies of its buffers.
        """
        self._field, self._device = field, device
        self._owner, self._scope = owner, scope

    def isolate(self) -> None:
        """Exchange the buffers now, for an evaluation that goes past this object."""
        if self._owner is not None:
            for module in modules_of(self._owner):
                self._scope.enter_context(private_buffers(module))
            self._owner = None

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field.

        Args:
            t: Time.
            x: State.

        Returns:
            Its value.
        """
        return self._evaluate(t, x, None)

    def at(self, state: RandomState) -> TensorField:
        """The field with the random numbers that it drew from a state.

        Args:
            state: The random state before the evaluation that is repeated.

        Returns:
            A field for one evaluation.
        """
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
