"""The layers that Kronecker factors cover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from torch import nn

from snopt.kronecker import KroneckerOptions, Slot, composite_of, matrices_of, view_of

__all__ = ["Scope", "cover", "unwrapped"]

Scope: TypeAlias = Literal["all", "ode"]


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside ``DataParallel`` or ``DistributedDataParallel``.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> unwrapped(nn.DataParallel(model)) is model
        True
    """
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while isinstance(model, wrappers):
        model = model.module
    return model


def cover(
    model: nn.Module,
    group_of: Mapping[int, int],
    fields: Sequence[nn.Module],
    scope: Scope,
    options: KroneckerOptions,
) -> dict[str, Slot]:
    """Find the layers to cover.

    Layers that share one weight share one slot, named after the first of them. A bias is part of
    the slot if it is in the same parameter group as its weight and all layers that share the
    weight share it too; otherwise the fallback trains it.

    Args:
        model: the model.
        group_of: the parameter group of each parameter, by ``id``; other parameters are not
            trained.
        fields: vector fields; their layers are recorded at quadrature nodes only.
        scope: ``"all"`` layers, or those of vector fields only (``"ode"``).
        options: form of convolutions, and whether to cover recurrent layers.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.GRUCell(2, 2))
        >>> groups = {id(p): 0 for p in model.parameters()}
        >>> list(cover(model, groups, [], "all", KroneckerOptions()))
        ['0']
        >>> list(cover(model, groups, [], "all", KroneckerOptions(recurrent=True)))
        ['0', '1.weight_ih', '1.weight_hh']
    """
    inside = {id(module) for field in fields for module in field.modules()}
    users: dict[int, dict[tuple[str, str], tuple[nn.Module, nn.Parameter | None]]] = {}
    for name, module in _layers(model, options.recurrent):
        for matrix, (weight, bias) in matrices_of(module).items():
            if id(weight) in group_of:
                users.setdefault(id(weight), {})[name, matrix] = (module, bias)
    slots = {}
    for weight_id, found in users.items():
        (name, matrix), (first, bias) = next(iter(found.items()))
        in_field = any(id(module) in inside for module, _ in found.values())
        if scope == "ode" and not in_field:
            continue
        shared = len({id(bias) for _, bias in found.values()}) == 1
        own_bias = shared and group_of.get(id(bias)) == group_of[weight_id]
        view = view_of(first, matrix, bias=own_bias, conv_form=options.conv)
        slots[_slot_name(name, matrix)] = Slot(view, in_field, tuple(found))
    return slots


def _layers(model: nn.Module, recurrent: bool) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers that may be covered, without the inner modules of composite layers."""
    parts: set[int] = set()
    for name, module in model.named_modules():
        composite = composite_of(module)
        if composite is not None:
            parts.update(id(part) for part in module.children())
        if id(module) not in parts and (recurrent or composite is None or not composite.recurrent):
            yield name, module


def _slot_name(name: str, matrix: str) -> str:
    """Return the layer's name, with the name of the matrix if the layer has several."""
    if matrix == "weight":
        return name or "model"
    return ".".join([*filter(None, [name]), matrix.removesuffix(".weight")])
