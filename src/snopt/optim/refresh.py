"""From recorded sums to new eigenbases."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from snopt.curvature import LayerFactors, Slot
from snopt.optim.guard import Counts, warn_once
from snopt.optim.parallel import shared_eigh
from snopt.optim.update import LayerState, averaged, change_basis

__all__ = ["factors_of", "renew", "warn_of_unrecorded"]


def factors_of(state: LayerState, slot: Slot) -> LayerFactors | None:
    """Read a layer's averaged factors back from its state."""
    modes = state.get("factors")
    return None if modes is None else LayerFactors(modes, slot.view.mode_sizes)


def renew(
    found: Mapping[str, LayerFactors],
    slots: Mapping[str, Slot],
    state_of: Callable[[Slot], LayerState],
    averaging: float,
    counts: Counts,
) -> None:
    """Average new factors into the old ones, decompose them, and change bases.

    A layer whose decomposition fails keeps its old basis. One without new factors (it was not
    called) keeps everything.

    Args:
        found: new factors by name.
        slots: all slots.
        state_of: the state of a slot.
        averaging: weight of the old factors.
        counts: failures are counted here, and warned of once.
    """
    blocks: list[Tensor] = []
    places: list[tuple[str, int]] = []
    for name, new in found.items():
        state = state_of(slots[name])
        count = int(state.get("refreshes", 0)) + 1
        state["refreshes"] = torch.tensor(count)
        factors = averaged(factors_of(state, slots[name]), new, averaging, count)
        state["factors"] = factors.modes
        for m, mode in enumerate(factors.modes):
            for block in mode:
                blocks.append(block)
                places.append((name, m))
    results = shared_eigh(blocks)
    bases: dict[str, list[list[Tensor]]] = {}
    values: dict[str, list[list[Tensor]]] = {}
    failed: set[str] = set()
    for name in found:
        count = len(slots[name].view.mode_sizes)
        bases[name], values[name] = [[] for _ in range(count)], [[] for _ in range(count)]
    for (name, m), result in zip(places, results, strict=True):
        if result is None:
            failed.add(name)
            continue
        values[name][m].append(result[0])
        bases[name][m].append(result[1])
    for name in found:
        if name in failed:
            warn_once(
                counts,
                "eigh_failures",
                f"the factors of layer {name!r} could not be decomposed; its old basis is kept. "
                "Later failures are counted in optimizer.counts.eigh_failures; if there are many, "
                "lower the learning rate",
            )
            continue
        slot = slots[name]
        state = state_of(slot)
        change_basis(state, bases[name], slot.view.target_modes)
        state["values"] = [_eigenvalues(v, slot, m) for m, v in enumerate(values[name])]


def _eigenvalues(blocks: list[Tensor], slot: Slot, mode: int) -> Tensor:
    """Eigenvalues of one mode ``[groups, size]``; ones where the mode has no factor."""
    if blocks:
        return torch.cat(blocks, dim=-1)
    weight = slot.view.parameters[0]
    return weight.new_ones(slot.view.groups, slot.view.mode_sizes[mode], dtype=torch.float32)


def warn_of_unrecorded(
    slots: Mapping[str, Slot], state_of: Callable[[Slot], LayerState], counts: Counts
) -> None:
    """Say, once, which layers have a gradient but were never recorded.

    Args:
        slots: all slots.
        state_of: the state of a slot.
        counts: where it is counted.
    """
    missing = [
        name
        for name, slot in slots.items()
        if slot.view.parameters[0].grad is not None and "bases" not in state_of(slot)
    ]
    if missing:
        warn_once(
            counts,
            "unrecorded",
            f"nothing was recorded of {', '.join(missing)}, which is trained by Adam for now: the "
            "layer has a gradient, but was not called as a module in training mode, or its "
            "statistics were not finite (optimizer.counts.dropped_calls)",
        )
