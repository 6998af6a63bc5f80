"""Several processes: factors averaged over ranks, eigendecompositions shared out among them.

Gradients are averaged by DistributedDataParallel. Each rank records the factors of its own part
of the batch; their mean over ranks is the factor of the joined batch, because factors are
averages over examples. Without a process group every function here does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, distributed

from snopt.curvature import Slot
from snopt.precondition import robust_eigh

__all__ = ["average_sums", "shared_eigh", "world_size"]


def world_size() -> int:
    """Number of processes that train together; 1 without a process group.

    Example:
        >>> world_size()
        1
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def _rank() -> int:
    return distributed.get_rank() if world_size() > 1 else 0


def average_sums(slots: Mapping[str, Slot], sizes: Mapping[str, list[list[int]]]) -> None:
    """Average the recorded sums over the ranks that recorded something; add up the batches.

    Args:
        slots: all slots, in the same order on every rank.
        sizes: block sizes of each slot's modes.
    """
    if world_size() == 1:
        return
    for name, slot in slots.items():
        sums = slot.sums
        weight = slot.view.parameters[0]
        dtype = torch.promote_types(weight.dtype, torch.float32)
        present = sums.modes is not None
        if sums.modes is None:
            # Every rank has to take part in the exchange, also with nothing to give.
            sums.modes = [
                [weight.new_zeros(slot.view.groups, b, b, dtype=dtype) for b in mode]
                for mode in sizes[name]
            ]
        blocks = [block for mode in sums.modes for block in mode]
        head = weight.new_tensor([float(present), sums.duration, float(sums.batch)], dtype=dtype)
        flat = torch.cat([head, *(block.to(dtype).flatten() for block in blocks)])
        distributed.all_reduce(flat)
        ranks = int(flat[0])
        if ranks == 0:
            sums.modes = None
            continue
        sums.duration, sums.batch = float(flat[1]) / ranks, round(float(flat[2]))
        parts = torch.split(flat[3:] / ranks, [block.numel() for block in blocks])
        for block, part in zip(blocks, parts, strict=True):
            block.copy_(part.reshape(block.shape))


def owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Share out eigendecompositions: the largest first, each to the rank with least to do.

    Example:
        >>> owners([10, 8, 8, 2], 2)
        [0, 1, 1, 0]
    """
    load, owner = [0.0] * ranks, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        rank = load.index(min(load))
        owner[i] = rank
        load[rank] += float(sizes[i]) ** 3
    return owner


def shared_eigh(blocks: list[Tensor]) -> list[tuple[Tensor, Tensor] | None]:
    """Decompose every block, each on one rank only.

    Args:
        blocks: symmetric ``[groups, b, b]``, the same on every rank.

    Returns:
        Eigenvalues and eigenvectors of each, the same on every rank; None where it failed.

    Example:
        >>> (values, vectors), = shared_eigh([torch.eye(2)[None]])
        >>> values
        tensor([[1., 1.]])
    """
    ranks = world_size()
    if ranks == 1:
        return [robust_eigh(block) for block in blocks]
    owner, rank = owners([block.shape[-1] for block in blocks], ranks), _rank()
    buffers = []
    for block, where in zip(blocks, owner, strict=True):
        found = robust_eigh(block) if where == rank else None
        groups, size = block.shape[:2]
        buffer = block.new_zeros(1 + groups * size * (size + 1))
        if found is not None:
            buffer = torch.cat([buffer.new_ones(1), found[0].flatten(), found[1].flatten()])
        buffers.append(buffer)
    # All ranks compute first and exchange afterwards, so that none waits for another's turn.
    for buffer, where in zip(buffers, owner, strict=True):
        distributed.broadcast(buffer, src=where)
    results: list[tuple[Tensor, Tensor] | None] = []
    for block, buffer in zip(blocks, buffers, strict=True):
        groups, size = block.shape[:2]
        ok, values, vectors = torch.split(buffer, [1, groups * size, groups * size * size])
        decomposed = (values.reshape(groups, size), vectors.reshape(groups, size, size))
        results.append(decomposed if bool(ok > 0) else None)
    return results
