"""Averaged factors and shared eigendecompositions for several processes.

Gradients are averaged by DistributedDataParallel. Each rank records the factors of its part of the
batch; their mean over ranks is the factor of the joint batch, because factors are averages over
examples. Without a process group there is no communication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, distributed

from snopt.base.distributed import rank, world_size
from snopt.kronecker import IterationSums, KroneckerOptions, Slot
from snopt.kronecker.factors import FactorSums
from snopt.optim.agreement import joint
from snopt.optim.batching import together
from snopt.optim.eigh import each_eigh

__all__ = ["MESSAGE", "average_sums", "owners", "shared_eigh"]

MESSAGE = 25 << 20
"""Bytes per message, as in DistributedDataParallel. With many workers the number of messages
dominates the cost; a single message would need another copy of all factors."""


def _exchanged(
    parts: Sequence[Tensor], kinds: Sequence[int], send: Callable[[Tensor, int], object]
) -> list[Tensor]:
    """Exchange vectors in few messages, and return the results."""
    back = list(parts)
    wholes = [(kind, part.dtype, part.device) for kind, part in zip(kinds, parts, strict=True)]
    for message in together(wholes, [part.nbytes for part in parts], MESSAGE):
        flat = torch.cat([parts[i] for i in message])
        with joint("exchange curvature"):
            send(flat, kinds[message[0]])
        lengths = [len(parts[i]) for i in message]
        for i, part in zip(message, torch.split(flat, lengths), strict=True):
            back[i] = part
    return back


def average_sums(
    sums: IterationSums,
    slots: Mapping[str, Slot],
    sizes: Mapping[str, list[list[int]]],
    options: KroneckerOptions,
) -> None:
    """Average sums over the ranks that recorded something, in place; add the numbers of examples.

    Args:
        sums: the sums of this rank.
        slots: all slots, in the same order on every rank.
        sizes: block sizes of each slot's modes.
        options: how factors are formed.
    """
    if world_size() == 1 or not slots:
        return
    parts = [_packed(sums.layers[name], slot, sizes[name]) for name, slot in slots.items()]
    recorded = float(bool(sums.rows))
    counts = [recorded, recorded * sums.batches, recorded * sums.batch_size(options)]
    parts.append(parts[0].new_tensor(counts))
    *added, counted = _exchanged(
        parts, [0] * len(parts), lambda flat, _: distributed.all_reduce(flat)
    )
    for name, part in zip(slots, added, strict=True):
        _unpack(sums.layers[name], part)
    ranks, batches, examples = counted.tolist()
    sums.ranks = max(1, round(ranks))
    sums.calls, sums.examples = batches / sums.ranks, round(examples)


def _packed(sums: FactorSums, slot: Slot, sizes: list[list[int]]) -> Tensor:
    """Return a layer's sums as one vector, zero if the rank did not record the layer.

    The first two entries are 1 or 0 (recorded or not) and the duration.
    """
    weight = slot.view.parameters[0]
    values = [float(sums.modes is not None), sums.duration]
    head = weight.new_tensor(values, dtype=torch.promote_types(weight.dtype, torch.float32))
    if sums.modes is None:
        groups = slot.view.groups
        sums.modes = [[head.new_zeros(groups, b, b) for b in mode] for mode in sizes]
    blocks = [block for mode in sums.modes for block in mode]
    return torch.cat([head, *(block.to(head.dtype).flatten() for block in blocks)])


def _unpack(sums: FactorSums, added: Tensor) -> None:
    """Read the sums over all ranks from a vector."""
    assert sums.modes is not None
    ranks, duration = added[:2].tolist()
    if ranks == 0:
        sums.modes = None
        return
    sums.duration = duration / ranks
    blocks = [block for mode in sums.modes for block in mode]
    parts = torch.split(added[2:] / ranks, [block.numel() for block in blocks])
    for block, part in zip(blocks, parts, strict=True):
        block.copy_(part.reshape(block.shape))


def owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Assign eigendecompositions to ranks: the largest first, each to the least loaded rank.

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
    """Decompose every block on one of the ranks.

    Args:
        blocks: symmetric ``[groups, b, b]``, the same on every rank.

    Returns:
        eigenvalues and eigenvectors of each block, the same on every rank; None if it failed.

    Example:
        >>> (values, vectors), = shared_eigh([torch.eye(2)[None]])
        >>> values
        tensor([[1., 1.]])
    """
    ranks = world_size()
    if ranks == 1:
        return each_eigh(blocks)
    owner, own = owners([block.shape[-1] for block in blocks], ranks), rank()
    mine = iter(each_eigh([b for b, where in zip(blocks, owner, strict=True) if where == own]))
    buffers = []
    for block, where in zip(blocks, owner, strict=True):
        found = next(mine) if where == own else None
        ok = block.new_tensor([float(found is not None)])
        parts = (block[..., 0], block) if found is None else found
        buffers.append(torch.cat([ok, *(part.flatten() for part in parts)]))
    # All ranks compute before any of them communicates, so none waits for another.
    buffers = _exchanged(buffers, owner, lambda flat, where: distributed.broadcast(flat, src=where))
    results: list[tuple[Tensor, Tensor] | None] = []
    for block, buffer in zip(blocks, buffers, strict=True):
        ok, values, vectors = torch.split(buffer, [1, block[..., 0].numel(), block.numel()])
        decomposed = (values.view_as(block[..., 0]), vectors.view_as(block))
        results.append(decomposed if bool(ok > 0) else None)
    return results
