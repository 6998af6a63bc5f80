"""The update of layers: pack, rotate, apply a rule, rotate back.

The functions here take a layer's state as a plain dictionary of tensors (lists of them, one for
each packed tensor) and return directions. They depend on neither the model nor the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from snopt.kronecker import LayerFactors, Slot
from snopt.optim.batching import alike
from snopt.optim.eigenbasis import (
    Bases,
    ModeBasis,
    carry_second_moment,
    rotate,
    rotate_back,
    transitions,
)
from snopt.optim.rules import adam, amortized, tikhonov

__all__ = [
    "Hyper",
    "LayerState",
    "Rule",
    "Layer",
    "Update",
    "averaged",
    "change_basis",
    "layer_directions",
    "slot_updates",
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


@dataclass(frozen=True)
class Layer:
    """What one update of a layer needs.

    Attributes:
        gradients: packed gradients, including weight decay that is part of the gradient.
        state: the layer's state, with ``bases``.
        targets: the modes of each packed tensor.
        step: the number of this step, from 1.
    """

    gradients: list[Tensor]
    state: LayerState
    targets: tuple[tuple[int, ...], ...]
    step: int

    @property
    def bases(self) -> list[list[ModeBasis]]:
        """The mode bases of each packed tensor."""
        return [[self.state["bases"][m] for m in modes] for modes in self.targets]

    @property
    def eigenvalues(self) -> list[list[Tensor]]:
        """The eigenvalues of the modes of each packed tensor."""
        return [[self.state["values"][m] for m in modes] for modes in self.targets]


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


def layer_directions(layers: Sequence[Layer], hyper: Hyper) -> list[list[Tensor]]:
    """Return the directions of the packed gradients of layers, and update their moments.

    Args:
        layers: the layers; with the rule ``"adam"`` all have made the same number of steps.
        hyper: the hyperparameters.
    """
    bases = [basis for layer in layers for basis in layer.bases]
    rotated = [rotate(g, b) for g, b in zip(_gradients(layers), bases, strict=True)]
    for layer in layers:
        layer.state["step"] = layer.step
    scaled = _rule(rotated, layers, hyper)
    out = [rotate_back(x, b) for x, b in zip(scaled, bases, strict=True)]
    if hyper.rule != "adam" and hyper.momentum:
        buffers = _moments(layers, "momentum")
        out = [buffer.mul_(hyper.momentum).add_(d) for buffer, d in zip(buffers, out, strict=True)]
        out = [d.clone() for d in out]
    return _by_layer(out, layers)


def slot_updates(due: Iterable[tuple[Slot, LayerState]], hyper: Hyper) -> list[Update]:
    """Return the directions of layers' parameters from their gradients.

    A layer without a gradient, or without a basis so far, has no update.

    Args:
        due: the layers, each with its state.
        hyper: the hyperparameters.
    """
    ready = [(s, state) for s, state in due
             if "bases" in state and s.view.parameters[0].grad is not None]  # fmt: skip
    layers = [_layer(slot, state, hyper) for slot, state in ready]
    updates = []
    for batch in alike([x.gradients[0] for x in layers], [x.step for x in layers]):
        directions = layer_directions([layers[i] for i in batch], hyper)
        for i, packed in zip(batch, directions, strict=True):
            view = ready[i][0].view
            params: list[Tensor] = list(view.parameters)
            found = [d.to(params[0].dtype) for d in view.unpack(packed) if d is not None]
            updates.append((params, found))
    return updates


def _layer(slot: Slot, state: LayerState, hyper: Hyper) -> Layer:
    """Pack the gradients of one layer."""
    params: list[Tensor] = list(slot.view.parameters)
    # Half-precision parameters are preconditioned in single precision.
    dtype = torch.promote_types(params[0].dtype, torch.float32)
    grads = [(torch.zeros_like(p) if p.grad is None else p.grad).to(dtype) for p in params]
    if hyper.scale != 1:
        grads = [g * hyper.scale for g in grads]
    if hyper.weight_decay:
        grads = [g.add(p, alpha=hyper.weight_decay) for g, p in zip(grads, params, strict=True)]
    packed = slot.view.pack(grads[0], grads[1] if len(grads) > 1 else None)
    # A state of an earlier release has a tensor here.
    step = int(state.get("step", 0)) + 1
    return Layer(packed, state, slot.view.target_modes, step)


def _gradients(layers: Sequence[Layer]) -> list[Tensor]:
    return [g for layer in layers for g in layer.gradients]


def _by_layer(tensors: Iterable[Tensor], layers: Sequence[Layer]) -> list[list[Tensor]]:
    """Undo the flattening of :func:`_gradients`."""
    rest = iter(tensors)
    return [[next(rest) for _ in layer.gradients] for layer in layers]


def _moments(layers: Sequence[Layer], name: str) -> list[Tensor]:
    """Return a moment's tensors, zero at the start."""
    for layer in layers:
        if name not in layer.state:
            layer.state[name] = [torch.zeros_like(g) for g in layer.gradients]
    return [moment for layer in layers for moment in layer.state[name]]


def _rule(Xs: list[Tensor], layers: Sequence[Layer], hyper: Hyper) -> list[Tensor]:
    """Apply the rule to rotated gradients, and store the new moments."""
    if hyper.rule == "kronecker":
        damping, decay = hyper.damping, hyper.weight_decay
        values = [v for layer in layers for v in layer.eigenvalues]
        return [tikhonov(X, v, damping=damping, weight_decay=decay)
                for X, v in zip(Xs, values, strict=True)]  # fmt: skip
    name = "square" if hyper.rule == "adam" else "second"
    old = _moments(layers, name)
    if hyper.rule == "adam":
        step = layers[0].state["step"]
        out, new = adam(Xs, old, step=step, decay=hyper.decay, damping=hyper.damping)
    else:
        settings = {"decay": hyper.decay, "damping": hyper.damping,
                    "weight_decay": hyper.weight_decay}  # fmt: skip
        pairs = [amortized(X, S, batch_size=hyper.batch_size, **settings)
                 for X, S in zip(Xs, old, strict=True)]  # fmt: skip
        out, new = [X for X, _ in pairs], [S for _, S in pairs]
    for layer, moments in zip(layers, _by_layer(new, layers), strict=True):
        layer.state[name] = moments
    return out
