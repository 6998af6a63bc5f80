"""What the forward pass keeps for the backward pass: tapes of evaluations, and values of stages.

An evaluation whose tape is kept is not repeated in the backward pass, which saves a quarter of the
work. But a tape is many times larger than a state. Tapes are therefore kept within a budget of
bytes, from the last evaluation backwards. There is one budget for each solve, and one for all
solves that wait for their backward pass (an ODE-RNN has one solve per observation). The size of one
evaluation's tape is measured once per field and shape of state. Every tape saves as much time as
any other, so no smaller budget gives the same speed.

A step without tapes is run again from its start. All its new tapes then exist at once, unless the
values of its stages were kept: then each stage is evaluated again when it is pulled back, and only
one tape exists at a time. Values are kept while they take fewer bytes than that saves, so for
fields whose tape is much larger than a state.
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
from snopt.adjoint.request import Allowed, Request
from snopt.base.types import time_tensor

#: Bytes of tape that one solve may keep, and that all solves may keep: 192 MiB and 1 GiB.
TAPE_BYTES = 3 * 2**26
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
    """Return the bytes that the tape of one evaluation holds, without parameters."""
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
    for end in stage:  # a kept tape holds its input and output, saved or not
        count(end)
    del stage
    return total


def allowed(request: Request, x0: Tensor, params: Sequence[Tensor], keep: int | None,
            *, slopes: bool = False) -> Allowed:  # fmt: skip
    """Return what a solve may keep.

    These are the tapes of ``keep`` steps, whose bytes do not count, or as many as fit into the
    budgets; and, with ``slopes``, the values of stages.

    To find out how many fit, the field is evaluated once per field and shape. This evaluation is
    not counted, so the counts of a solve do not depend on earlier ones.
    """
    tableau = request.settings.tableau
    if tableau is None:
        return Allowed()
    if keep is not None and not slopes:
        return Allowed(keep * tableau.stages)
    each = max(1, _measured(request, x0, params))
    saved = (tableau.stages - 1) * each - Kept.used if slopes else 0
    if keep is not None:
        return Allowed(keep * tableau.stages, 0, max(0, saved))
    free = max(0, min(TAPE_BYTES, ALL_TAPE_BYTES - Kept.used))
    return Allowed(free // each, each, max(0, saved))


def _measured(request: Request, x0: Tensor, params: Sequence[Tensor]) -> int:
    """Return the bytes of one evaluation's tape, measured once per field and shape."""
    owner, name = _owner(request.func)
    try:
        known = _MEASURED.setdefault(owner, {})
    except TypeError:  # no weak references to this field
        known = {}
    key = (name, x0.shape, x0.dtype, x0.device, *[p.shape for p in params])
    if key not in known:
        known[key] = tape_bytes(request, x0.detach(), params)
    return known[key]


def _owner(func: object) -> tuple[object, str]:
    """Return a key that stays the same if a method is bound, or a closure made, at every call."""
    if isinstance(func, partial):
        return _owner(func.func)[0], "partial"
    if isinstance(func, MethodType):
        return func.__self__, func.__name__
    return (func.__code__, "") if isinstance(func, FunctionType) else (func, "")
