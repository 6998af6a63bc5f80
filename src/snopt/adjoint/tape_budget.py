"""How many of the last steps keep their tape from the forward pass.

A step whose tape is kept is not run again in the backward pass, which saves a quarter of the
work; but a tape is many times larger than a state. So tapes are kept within a budget of bytes,
from the last step backwards. The size of one evaluation's tape is measured once per field and
shape of state.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from types import FunctionType, MethodType

import torch
from torch import Tensor

from snopt.adjoint.pullback import tape
from snopt.adjoint.request import Request
from snopt.base.types import time_tensor

#: Bytes of tape that one solve may keep: 256 MiB.
TAPE_BYTES = 2**28

_MEASURED: weakref.WeakKeyDictionary[object, dict[object, int]] = weakref.WeakKeyDictionary()


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
                  keep: int | None) -> int:  # fmt: skip
    """Return how many of the last steps keep their tape: ``keep``, or as many as fit.

    To find out how many fit, the field is evaluated once per field and shape. This evaluation is
    not counted, so that the counts of a solve do not depend on earlier ones.
    """
    tableau = request.settings.tableau
    if keep is not None or tableau is None:
        return keep or 0
    try:
        known = _MEASURED.setdefault(_owner(request.func), {})
    except TypeError:  # no weak references to this field
        known = {}
    name = getattr(request.func, "__name__", "")
    key = (name, x0.shape, x0.dtype, x0.device, *(p.shape for p in params))
    if key not in known:
        known[key] = tape_bytes(request, x0.detach(), params)
    return TAPE_BYTES // max(1, known[key] * tableau.stages)


def _owner(func: object) -> object:
    """Return what stays the same when a method is bound, or a closure made, for every call."""
    if isinstance(func, partial):
        return _owner(func.func)
    if isinstance(func, MethodType):
        return func.__self__
    return func.__code__ if isinstance(func, FunctionType) else func
