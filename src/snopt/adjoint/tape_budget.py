"""How many last steps may keep their tape from the forward pass.

A step whose tape is kept is not run again in the backward pass, which saves a quarter of the
work; but a tape is many times larger than a state. So tapes are kept within a budget of bytes,
from the last step backwards. What one evaluation's tape takes is measured once for every field
and shape of state.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.adjoint.pullback import tape
from snopt.adjoint.request import Request
from snopt.base.types import real_dtype

#: Bytes of tape that one solve may keep: 256 MiB.
TAPE_BYTES = 2**28

_MEASURED: weakref.WeakKeyDictionary[object, dict[object, int]] = weakref.WeakKeyDictionary()


def tape_bytes(request: Request, x0: Tensor, params: Sequence[Tensor]) -> int:
    """Bytes that autograd saves for one evaluation of the field, parameters apart.

    Args:
        request: The solve.
        x0: Packed initial state.
        params: Parameters, which are alive anyway.

    Returns:
        The number of bytes, each storage counted once.
    """
    seen = {p.untyped_storage().data_ptr() for p in params}
    total = 0

    def count(saved: Tensor) -> Tensor:
        nonlocal total
        storage = saved.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
        return saved

    t = torch.tensor(request.times[0], dtype=real_dtype(x0.dtype), device=x0.device)
    with (
        request.again(x0.device) as field,
        torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved),
    ):
        stage = tape(field, t, x0)
    del stage
    return total


def steps_to_keep(request: Request, x0: Tensor, params: Sequence[Tensor],
                  keep: int | None = None, budget: int = TAPE_BYTES) -> int:  # fmt: skip
    """How many last steps keep their tape.

    Args:
        request: The solve.
        x0: Packed initial state.
        params: Parameters.
        keep: The user's number; None keeps as many as fit into the budget. To find out how many,
            one evaluation is made once per field and shape. It is not in the counts of the solve,
            so that these are the same in a new process.
        budget: Bytes of tape that may be kept.

    Returns:
        A number of steps, perhaps 0.
    """
    tableau = request.settings.tableau
    if keep is not None or tableau is None:
        return keep or 0
    try:
        known = _MEASURED.setdefault(request.func, {})
    except TypeError:  # a field that cannot be referred to weakly
        known = {}
    key = (x0.shape, x0.dtype, x0.device)
    if key not in known:
        known[key] = tape_bytes(request, x0.detach(), params)
    return budget // max(1, known[key] * tableau.stages)
