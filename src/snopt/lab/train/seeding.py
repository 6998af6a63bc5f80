"""Random numbers that do not depend on what was computed before, and can be saved."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

__all__ = ["generator", "isolated", "rng_state", "seed_all", "set_rng_state", "subseed"]


def subseed(seed: int, *purpose: object) -> int:
    """Derive a seed for one purpose; seeds for different purposes have nothing in common.

    Args:
        seed: The seed of the run.
        purpose: What the numbers are for, for example ``"order", epoch``.

    Returns:
        A number below 2³², which every library accepts.

    Example:
        >>> subseed(0, "order", 1) == subseed(0, "order", 1) != subseed(0, "order", 2)
        True
    """
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Make a generator of its own for one purpose.

    Example:
        >>> a, b = (torch.rand(1, generator=generator(0, "noise")) for _ in range(2))
        >>> bool(a == b)
        True
    """
    return torch.Generator().manual_seed(subseed(seed, *purpose))


def seed_all(seed: int, *purpose: object) -> None:
    """Seed the global generators of torch (all devices), NumPy and Python.

    Example:
        >>> seed_all(0, "weights")
        >>> first = torch.rand(1)
        >>> seed_all(0, "weights")
        >>> bool(first == torch.rand(1))
        True
    """
    number = subseed(seed, *purpose)
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def rng_state() -> dict[str, Any]:
    """Return the state of the global generators as tensors and plain values.

    They can be loaded with ``weights_only=True``.
    """
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put the global generators back to where :func:`rng_state` found them.

    Example:
        >>> state = rng_state()
        >>> first = torch.rand(1), random.random(), np.random.rand()
        >>> set_rng_state(state)
        >>> first == (torch.rand(1), random.random(), np.random.rand())
        True
    """
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.device_count() >= len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def isolated(seed: int, *purpose: object) -> Iterator[None]:
    """Compute with fresh random numbers and leave the global generators as they were.

    Evaluation happens in here: it gives the same numbers for the same weights, and how often it
    happens does not change what is learnt.

    Example:
        >>> before = torch.get_rng_state()
        >>> with isolated(0, "evaluation"):
        ...     _ = torch.rand(3)
        >>> bool((torch.get_rng_state() == before).all())
        True
    """
    state = rng_state()
    seed_all(seed, *purpose)
    try:
        yield
    finally:
        set_rng_state(state)
