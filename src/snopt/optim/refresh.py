"""Compute new eigenbases from recorded sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from snopt.base.distributed import world_size
from snopt.kronecker import LayerFactors, Recording, Slot
from snopt.optim.batching import BATCH, together
from snopt.optim.guard import Counts, warn_once
from snopt.optim.parallel import shared_eigh
from snopt.optim.update import LayerState, averaged, change_basis

__all__ = ["factors_of", "renew", "warn_of_unrecorded"]


def factors_of(state: LayerState) -> LayerFactors | None:
    """Return a layer's averaged factors from its state, or None."""
    modes = state.get("factors")
    return None if modes is None else LayerFactors(modes)


def renew(
    found: dict[str, LayerFactors],
    slots: Mapping[str, Slot],
    state_of: Callable[[Slot], LayerState],
    averaging: float,
    counts: Counts,
) -> None:
    """Average new factors into the old ones, decompose them, and change bases.

    A layer whose decomposition fails keeps its old basis. A layer without new factors (it was not
    called) does not change.

    Args:
        found: new factors by name. The dictionary is emptied layer by layer, so old and new
            matrices are in memory together for one layer, or a few small ones, only.
        slots: all slots.
        state_of: returns the state of a slot.
        averaging: weight of the old factors.
        counts: receives the number of failures.
    """
    names = list(found)
    sizes = [sum(b.nbytes for mode in found[name].modes for b in mode) for name in names]
    # Several processes share the decompositions, so all factors are needed at once.
    limit = sum(sizes) if world_size() > 1 else BATCH
    for batch in together([0] * len(names), sizes, limit):
        part = {names[i]: slots[names[i]] for i in batch}
        for name, slot in part.items():
            _average(found.pop(name), state_of(slot), averaging)
        blocks = {name: state_of(slot)["factors"] for name, slot in part.items()}
        results = iter(shared_eigh([b for modes in blocks.values() for m in modes for b in m]))
        for name, slot in part.items():
            decomposed = [[next(results) for _ in mode] for mode in blocks[name]]
            _enter(name, slot, state_of(slot), decomposed, counts)


def _average(new: LayerFactors, state: LayerState, averaging: float) -> None:
    """Average a layer's new factors into its state."""
    count = int(state.get("refreshes", 0)) + 1
    state["refreshes"] = torch.tensor(count)
    state["factors"] = averaged(factors_of(state), new, averaging, count).modes


def _enter(
    name: str,
    slot: Slot,
    state: LayerState,
    decomposed: list[list[tuple[Tensor, Tensor] | None]],
    counts: Counts,
) -> None:
    """Change a layer to its new eigenbasis, if every factor could be decomposed."""
    modes = [[pair for pair in mode if pair is not None] for mode in decomposed]
    if any(pair is None for mode in decomposed for pair in mode):
        warn_once(
            counts,
            "eigh_failures",
            f"the factors of layer {name!r} could not be decomposed; keeping its old basis "
            "(or Adam without one). If this happens often, lower the learning rate",
        )
        return
    bases = [[vectors for _, vectors in mode] for mode in modes]
    change_basis(state, bases, slot.view.target_modes)
    state["values"] = [torch.cat([values for values, _ in mode], dim=-1) for mode in modes]


def warn_of_unrecorded(
    recording: Recording,
    slots: Mapping[str, Slot],
    state_of: Callable[[Slot], LayerState],
    counts: Counts,
) -> None:
    """Warn once about layers that have a gradient but were never recorded, with the reason.

    Args:
        recording: the recording of this iteration.
        slots: all slots.
        state_of: returns the state of a slot.
        counts: receives the number of such refreshes.
    """
    missing: dict[str, list[str]] = {}
    for name, slot in slots.items():
        if slot.view.parameters[0].grad is not None and "factors" not in state_of(slot):
            missing.setdefault(recording.why_missing(name), []).append(repr(name))
    if missing:
        reasons = "; ".join(f"{', '.join(names)} ({why})" for why, names in missing.items())
        warn_once(
            counts,
            "unrecorded",
            f"no curvature recorded for {reasons}; falling back to Adam for now",
        )
