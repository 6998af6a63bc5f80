"""Which parameters are covered by Kronecker factors, and which are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from torch import nn

from snopt.kronecker import ConvForm, Slot, is_covered, view_of

__all__ = ["Scope", "cover", "unwrapped"]

Scope: TypeAlias = Literal["all", "ode"]


def unwrapped(model: nn.Module) -> nn.Module:
    """Take the model out of ``DataParallel`` or ``DistributedDataParallel``.

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
    *,
    scope: Scope,
    conv_form: ConvForm,
) -> dict[str, Slot]:
    """Find the layers to cover.

    Layers that share one weight share one slot, named after the first of them. A bias is part of
    the slot if it is in the same parameter group as its weight and all layers that share the
    weight share it too; otherwise it is left to the fallback.

    Args:
        model: the model.
        group_of: the parameter group of each parameter, by ``id``; others are not trained.
        fields: vector fields; their layers are recorded at quadrature nodes only.
        scope: ``"all"`` layers, or those of vector fields only (``"ode"``).
        conv_form: form of convolutions.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.GRUCell(2, 2))
        >>> list(cover(model, {id(p): 0 for p in model.parameters()}, [],
        ...            scope="all", conv_form="kfc"))
        ['0']
    """
    inside = {id(module) for field in fields for module in field.modules()}
    users: dict[int, dict[str, nn.Module]] = {}
    for name, module in model.named_modules():
        if is_covered(module) and id(module.weight) in group_of:
            users.setdefault(id(module.weight), {})[name] = module
    slots = {}
    for weight_id, modules in users.items():
        name, first = next(iter(modules.items()))
        in_field = any(id(module) in inside for module in modules.values())
        if scope == "ode" and not in_field:
            continue
        biases = {id(module.bias) for module in modules.values()}
        own_bias = len(biases) == 1 and group_of.get(id(first.bias)) == group_of[weight_id]
        view = view_of(first, bias=own_bias, conv_form=conv_form)
        slots[name or "model"] = Slot(view, in_field, tuple(modules))
    return slots
