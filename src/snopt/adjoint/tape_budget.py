"""The number of last steps that keep their tape from the forward pass.

A step whose tape is kept is not recomputed in the backward pass, which saves a quarter of the work.
But a tape is many times larger than a state. Tapes are therefore kept within a budget of bytes,
from the last step backwards. There is one budget for each solve, and one for all solves that wait
for their backward pass (an ODE-RNN has one solve per observation). The size of one evaluation's
tape is measured once per field and shape of state.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.pullback import tape
from snopt.adjoint.request import Request
from snopt.base.types import time_tensor

#: Bytes of tape that one solve may keep, and that all solves may keep: 256 MiB and 1 GiB.
TAPE_BYTES = 2**28
ALL_TAPE_BYTES = 2**30

_MEASURED: weakref.WeakKeyDictionary[object, dict[object, int]] = weakref.WeakKeyDictionary()


class Kept(list[Any]):
    """The tapes of one solve. Their bytes count as used until the list is freed."""

    used = 0
    _lock = threading.RLock()  # freeing may happen while the lock is held

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def use(self, nbytes: int) -> None:
        """Count these bytes as used by the tapes."""
        with Kept._lock:
            Kept.used += nbytes - self._bytes
            self._bytes = nbytes

    def __del__(self) -> None:
        self.use(0)


def tape_bytes(request: Request, x0: Tensor, params: Sequence[Tensor]) -> int:
    """Return the bytes that autograd saves for one evaluation of the field, without parameters."""
    seen = {p.untyped_storage().data_ptr() for p in params}
    total = 0

    def count(saved: Tensor) -> Tensor:
        nonlocal total
        storage = saved.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
        return saved

    with (
        request.again(x0.device) as field,
        torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved),
    ):
        stage = tape(field, time_tensor(request.times[0], x0), x0)
    del stage
    return total


def steps_to_keep(request: Request, x0: Tensor, params: Sequence[Tensor],
                  keep: int | None) -> tuple[int, int]:  # fmt: skip
    """Return how many of the last steps keep their tape, and the bytes of one step's tape.

    These are ``keep`` steps, whose bytes do not count, or as many as fit into the budgets.

    To find out how many fit, the field is evaluated once per field and shape. This evaluation is
    not counted, so the counts of a solve do not depend on earlier ones.
    """
    tableau = request.settings.tableau
    if keep is not None or tableau is None:
        return keep or 0, 0
    owner, name = _owner(request.func)
    try:
        known = _MEASURED.setdefault(owner, {})
    except TypeError:  # no weak references to this field
        known = {}
    key = (name, x0.shape, x0.dtype, x0.device, *[p.shape for p in params])
    if key not in known:
        known[key] = tape_bytes(request, x0.detach(), params)
    each = max(1, known[key] * tableau.stages)
    return max(0, min(TAPE_BYTES, ALL_TAPE_BYTES - Kept.used)) // each, each


def _owner(func: object) -> tuple[object, str]:
    """Return a key that stays the same if a method is bound, or a closure made, at every call."""
    if isinstance(func, partial):
        return _owner(func.func)[0], "partial"
    if isinstance(func, MethodType):
        return func.__self__, func.__name__
    return (func.__code__, "") if isinstance(func, FunctionType) else (func, "")
