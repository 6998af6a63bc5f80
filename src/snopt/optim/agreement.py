"""Joint decisions of several processes, and errors when a process is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed

from snopt.base.distributed import rank, world_size

__all__ = ["all_ranks_ok", "joint"]


@contextmanager
def joint(what: str) -> Iterator[None]:
    """Add the purpose of an exchange to its error."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {rank()} could not {what}: another process has exited, raised an exception, or "
            "called SNOpt.step or snopt.all_ranks_ok fewer times. Training cannot continue in this "
            "process group; check the output of the other processes"
        ) from error


def all_ranks_ok(ok: bool) -> bool:
    """Return whether ``ok`` is True on all processes; every process must call it.

    Use it to decide on all processes together whether to use a batch. Call it between the forward
    and the backward pass: ``DistributedDataParallel`` communicates during ``backward``, so a
    process that raises an exception there leaves the others waiting.

    Args:
        ok: whether this process can continue.

    Returns:
        the same value on every process; ``ok`` itself without a process group.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> for batch in torch.ones(3, 4, 2):
        ...     optimizer.zero_grad()
        ...     try:
        ...         loss, ok = model(batch).mean(), True
        ...     except RuntimeError:  # in place of snopt.SolveError
        ...         ok = False
        ...     if not all_ranks_ok(ok):
        ...         continue
        ...     loss.backward()
        ...     _ = optimizer.step()
    """
    if world_size() == 1:
        return ok
    nccl = "nccl" in distributed.get_backend()
    flag = torch.tensor(float(ok), device="cuda" if nccl else "cpu")
    with joint("decide with the other processes whether to continue"):
        distributed.all_reduce(flag, op=distributed.ReduceOp.MIN)
        return bool(flag > 0)
