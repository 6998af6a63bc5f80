"""One layer's update: pack, rotate, apply a rule, rotate back.

The functions here take a layer's state as a plain dictionary of tensors (lists of them, one for
each packed tensor) and return directions. They depend on neither the model nor the optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from snopt.kronecker import LayerFactors, Slot
from snopt.optim.eigenbasis import Bases, carry_second_moment, rotate, rotate_back, transitions
from snopt.optim.rules import adam, amortized, tikhonov

__all__ = [
    "Hyper",
    "LayerState",
    "Rule",
    "averaged",
    "change_basis",
    "Update",
    "layer_directions",
    "slot_update",
]

Rule: TypeAlias = Literal["adam", "amortized", "kronecker"]
#: ``step``, ``factors``, ``bases``, ``values`` and moments; tensors in (nested) lists.
LayerState: TypeAlias = dict[str, Any]

#: One update of a layer: parameters and directions.
Update: TypeAlias = tuple[list[Tensor], list[Tensor]]


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters of an update.

    Attributes:
        rule: ``"adam"``, ``"amortized"`` (Algorithm 2) or ``"kronecker"`` (eq. ``tik-reg``).
        momentum: heavy-ball momentum; ``"adam"`` uses averaging instead.
        decay: β₂ of ``"adam"``; α of Algorithm 2.
        damping: ε.
        weight_decay: γ as part of the curvature (not for ``"adam"``, whose decay is decoupled).
        batch_size: N of Algorithm 2's second moment.
        scale: factor of the gradient: 1/N if the loss is a sum, to convert it to a mean.
    """

    rule: Rule
    momentum: float
    decay: float
    damping: float
    weight_decay: float = 0.0
    batch_size: int = 1
    scale: float = 1.0


def averaged(
    old: LayerFactors | None, new: LayerFactors, weight: float, count: int
) -> LayerFactors:
    """Average factors over refreshes, without bias towards the first; overwrite the new ones.

        Ā_k = w_k Ā_{k-1} + (1 - w_k) A_k,    w_k = (β - βᵏ) / (1 - βᵏ)

    Args:
        old: the average so far.
        new: A_k.
        weight: β.
        count: k, from 1.

    Example:
        >>> one, three = (LayerFactors([[torch.tensor([[[c]]])]]) for c in (1.0, 3.0))
        >>> averaged(one, three, 0.5, 2).modes[0][0]
        tensor([[[2.3333]]])
    """
    if old is None or weight == 0:
        return new
    w = (weight - weight**count) / (1 - weight**count)
    for before, after in zip(old.modes, new.modes, strict=True):
        for a, b in zip(before, after, strict=True):
            b.lerp_(a.to(b), w)
    return new


def change_basis(state: LayerState, bases: Bases, targets: tuple[tuple[int, ...], ...]) -> None:
    """Change a layer to a new eigenbasis and transform its moments.

    Second moments are transformed with the squared entries of the rotation.

    Args:
        state: the layer's state.
        bases: the new basis of each mode.
        targets: the modes of each packed tensor.
    """
    old = state.get("bases")
    state["bases"] = [list(mode) for mode in bases]
    if old is None:
        return
    change = transitions(old, bases)
    for i, modes in enumerate(targets):
        if "square" in state:
            turn = [change[m] for m in modes]
            state["square"][i] = carry_second_moment(state["square"][i], turn)


def _start(state: LayerState, name: str, gradients: list[Tensor]) -> list[Tensor]:
    """Return a moment's tensors, zero at the start."""
    if name not in state:
        state[name] = [torch.zeros_like(g) for g in gradients]
    moment: list[Tensor] = state[name]
    return moment


def layer_directions(
    gradients: list[Tensor],
    state: LayerState,
    targets: tuple[tuple[int, ...], ...],
    hyper: Hyper,
) -> list[Tensor]:
    """Return the directions of one layer's packed gradients, and update the moments.

    Args:
        gradients: packed gradients, including weight decay that is part of the gradient.
        state: the layer's state, with ``bases``.
        targets: the modes of each packed tensor.
        hyper: the hyperparameters.
    """
    state["step"] += 1
    out = []
    for i, (g, modes) in enumerate(zip(gradients, targets, strict=True)):
        bases = [state["bases"][m] for m in modes]
        X = _rule(rotate(g, bases), gradients, state, i, modes, hyper)
        out.append(rotate_back(X, bases))
    if hyper.rule != "adam" and hyper.momentum:
        buffers = _start(state, "momentum", gradients)
        out = [buffer.mul_(hyper.momentum).add_(d) for buffer, d in zip(buffers, out, strict=True)]
        out = [d.clone() for d in out]
    return out


def slot_update(slot: Slot, state: LayerState, hyper: Hyper) -> Update | None:
    """Return the directions of one layer's parameters from their gradients.

    Args:
        slot: the layer.
        state: its state.
        hyper: the hyperparameters.

    Returns:
        the update, or None if the layer has no gradient or no basis yet.
    """
    params: list[Tensor] = list(slot.view.parameters)
    if "bases" not in state or params[0].grad is None:
        return None
    state.setdefault("step", torch.zeros((), dtype=torch.int64))
    # Half-precision parameters are preconditioned in single precision.
    dtype = torch.promote_types(params[0].dtype, torch.float32)
    grads = [(torch.zeros_like(p) if p.grad is None else p.grad).to(dtype) for p in params]
    if hyper.scale != 1:
        grads = [g * hyper.scale for g in grads]
    if hyper.weight_decay:
        grads = [g.add(p, alpha=hyper.weight_decay) for g, p in zip(grads, params, strict=True)]
    packed = slot.view.pack(grads[0], grads[1] if len(grads) > 1 else None)
    found = slot.view.unpack(layer_directions(packed, state, slot.view.target_modes, hyper))
    directions = [d.to(params[0].dtype) for d in found if d is not None]
    return params, directions


def _rule(
    X: Tensor,
    gradients: list[Tensor],
    state: LayerState,
    i: int,
    modes: tuple[int, ...],
    hyper: Hyper,
) -> Tensor:
    if hyper.rule == "adam":
        square = _start(state, "square", gradients)
        X, square[i] = adam(
            X, square[i], step=int(state["step"]), decay=hyper.decay, damping=hyper.damping
        )
        return X
    if hyper.rule == "amortized":
        S = _start(state, "second", gradients)
        X, S[i] = amortized(
            X,
            S[i],
            decay=hyper.decay,
            damping=hyper.damping,
            batch_size=hyper.batch_size,
            weight_decay=hyper.weight_decay,
        )
        return X
    values = [state["values"][m] for m in modes]
    return tikhonov(X, values, damping=hyper.damping, weight_decay=hyper.weight_decay)
