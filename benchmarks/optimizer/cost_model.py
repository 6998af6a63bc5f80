"""What an iteration costs on p workers: a formula, and nothing measured.

    plain(p)   = fixed + per_example N/p + G(p)
    refresh(p) = fixed' + per_example' N/p + G(p) + Σ_f reduce(f) + E(p) + Σ_e send(e)

N is the batch of all workers together. ``G`` averages the gradients, ``reduce`` a message f of
factors, ``send`` broadcasts a message e of eigenbases from their owner, and ``E`` is the time of
the worker that has most to decompose. Messages follow the usual account of latency α and
bandwidth β:

    reduce(s) = 2 (p - 1) (α + s / (p β))       a ring, in 2 (p - 1) rounds of s/p bytes
    send(s)   = ⌈log2 p⌉ (α + s / β)            a tree

Nothing overlaps in this account, so that it errs on the side of too slow where gradients travel
while others are still being computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from snopt.optim.batching import together
from snopt.optim.parallel import MESSAGE, owners

FLOAT = 4
#: DistributedDataParallel sends gradients in buckets: a small first one, then larger ones.
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20


@dataclass(frozen=True)
class Link:
    """One kind of message.

    Attributes:
        latency: α, seconds a round.
        bandwidth: β, bytes a second.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Machine:
    """What a kind of worker and the network between them can do.

    Attributes:
        reduce: messages of an all-reduce.
        send: messages of a broadcast.
        eigh_fixed: seconds of a decomposition apart from
        eigh_cubic: seconds a cubed size.
    """

    reduce: Link
    send: Link
    eigh_fixed: float
    eigh_cubic: float

    def all_reduce(self, size: int, workers: int) -> float:
        """Seconds of averaging ``size`` bytes over all workers.

        Example:
            >>> link = Link(1e-4, 1e9)
            >>> Machine(link, link, 0.0, 0.0).all_reduce(1_000_000, workers=2)
            0.0012
        """
        rounds = 2 * (workers - 1)
        return rounds * (self.reduce.latency + size / (workers * self.reduce.bandwidth))

    def broadcast(self, size: int, workers: int) -> float:
        """Seconds of sending ``size`` bytes from one worker to all others.

        Example:
            >>> link = Link(1e-4, 1e9)
            >>> Machine(link, link, 0.0, 0.0).broadcast(1_000_000, workers=8)
            0.0033
        """
        rounds = math.ceil(math.log2(workers))
        return rounds * (self.send.latency + size / self.send.bandwidth)

    def eigh(self, size: int, groups: int = 1) -> float:
        """Seconds of one decomposition."""
        return groups * (self.eigh_fixed + self.eigh_cubic * size**3)


@dataclass(frozen=True)
class Sizes:
    """What a model has to exchange.

    Attributes:
        parameters: how many numbers are trained.
        layers: for each covered layer its factors' blocks, as (groups, size).
    """

    parameters: int
    layers: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The blocks of all layers."""
        return [block for layer in self.layers for block in layer]

    @property
    def factor_bytes(self) -> list[int]:
        """Bytes of each layer's factors and two numbers with them; three numbers at the end.

        Example:
            >>> Sizes(6, (((1, 2), (1, 3)),)).factor_bytes  # 4 (2 + 2² + 3²)
            [60, 12]
        """
        layers = [FLOAT * (2 + sum(g * b * b for g, b in layer)) for layer in self.layers]
        return [*layers, 3 * FLOAT]

    @property
    def basis_bytes(self) -> list[int]:
        """Bytes of each block's eigenvalues and eigenvectors, and of one number.

        Example:
            >>> Sizes(6, (((1, 2), (1, 3)),)).basis_bytes  # 4 (1 + b (b + 1))
            [28, 52]
        """
        return [FLOAT * (1 + g * b * (b + 1)) for g, b in self.blocks]

    @property
    def bucket_bytes(self) -> list[int]:
        """Bytes of the buckets in which gradients are averaged."""
        left, buckets = FLOAT * self.parameters, []
        while left > 0:
            buckets.append(min(left, BUCKET if buckets else FIRST_BUCKET))
            left -= buckets[-1]
        return buckets


@dataclass(frozen=True)
class Compute:
    """One worker's own time: ``fixed + per_example n`` for n examples, without decompositions."""

    fixed: float
    per_example: float

    def seconds(self, examples: float) -> float:
        """Return the seconds of an iteration."""
        return self.fixed + self.per_example * examples


def plain_seconds(
    machine: Machine, sizes: Sizes, compute: Compute, batch: int, workers: int
) -> float:
    """Seconds of an iteration without a refresh, ``batch`` examples shared by all workers.

    Example:
        >>> link = Link(1e-4, 1e9)
        >>> machine = Machine(link, link, 0.0, 0.0)
        >>> round(plain_seconds(machine, Sizes(1000, ()), Compute(0.1, 0.01), 100, 1), 3)
        1.1
        >>> round(plain_seconds(machine, Sizes(1000, ()), Compute(0.1, 0.01), 100, 10), 3)
        0.202
    """
    own = compute.seconds(batch / workers)
    return own + sum(machine.all_reduce(size, workers) for size in sizes.bucket_bytes)


def eigh_seconds(machine: Machine, blocks: Sequence[tuple[int, int]], workers: int) -> float:
    """Seconds of the worker that has most to decompose, shared out as SNOpt does.

    Example:
        >>> link = Link(0.0, 1e9)
        >>> machine = Machine(link, link, eigh_fixed=0.0, eigh_cubic=1e-6)
        >>> blocks = [(1, 100), (1, 100), (1, 100)]
        >>> [round(eigh_seconds(machine, blocks, p), 2) for p in (1, 2, 3, 64)]
        [3.0, 2.0, 1.0, 1.0]
    """
    load = [0.0] * workers
    owner = owners([size for _, size in blocks], workers)
    for (groups, size), place in zip(blocks, owner, strict=True):
        load[place] += machine.eigh(size, groups)
    return max(load)


def refresh_messages(sizes: Sizes, workers: int) -> tuple[list[int], list[int]]:
    """Bytes of the messages of a refresh: of factors, and of eigenbases, those of an owner joined.

    Example:
        >>> refresh_messages(Sizes(6, (((1, 2), (1, 3)), ((1, 2),))), workers=2)
        ([96], [56, 52])
    """

    def joined(owner: Sequence[int], parts: list[int]) -> list[int]:
        return [sum(parts[i] for i in message) for message in together(owner, parts, MESSAGE)]

    factors, bases = sizes.factor_bytes, sizes.basis_bytes
    owner = owners([size for _, size in sizes.blocks], workers)
    return joined([0] * len(factors), factors), joined(owner, bases)


def refresh_parts(machine: Machine, sizes: Sizes, workers: int) -> dict[str, float]:
    """Seconds of the parts of a refresh that are shared or exchanged."""
    factors, bases = refresh_messages(sizes, workers)
    return {
        "all_reduce": sum(machine.all_reduce(size, workers) for size in factors),
        "eigh": eigh_seconds(machine, sizes.blocks, workers),
        "broadcast": sum(machine.broadcast(size, workers) for size in bases),
    }


def refresh_seconds(
    machine: Machine, sizes: Sizes, compute: Compute, batch: int, workers: int
) -> float:
    """Seconds of a refresh iteration; ``compute`` includes the recording of factors."""
    rest = plain_seconds(machine, sizes, compute, batch, workers)
    return rest + sum(refresh_parts(machine, sizes, workers).values())
