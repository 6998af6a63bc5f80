"""Fields and parameter names of an optimizer's model, and detection of changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ModelWatch", "field_list", "with_names"]


def field_list(model: nn.Module, fields: nn.Module | Iterable[nn.Module]) -> list[nn.Module]:
    """Return the vector fields that are not solved by a block, after checking them.

    Args:
        model: the model.
        fields: one field, or several.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1))
        >>> field_list(model, model[0])
        [Linear(in_features=1, out_features=1, bias=True)]
    """
    found = [fields] if isinstance(fields, nn.Module) else list(fields)
    known = {id(p) for p in model.parameters()}
    for field in found:
        if not isinstance(field, nn.Module):
            raise TypeError(f"fields contains {field!r}, which is not a module; pass vector fields")
        if any(id(p) not in known for p in field.parameters()):
            raise ValueError(
                f"fields contains a {type(field).__name__} with parameters that are not in the "
                "model, so its layers would not be covered; make it a submodule of the model"
            )
    return found


def with_names(
    model: nn.Module, groups: Sequence[dict[str, Any]], group: dict[str, Any]
) -> dict[str, Any]:
    """Add the names of a group's parameters, if the other groups have names and it has none.

    torch does not allow groups with and without names in one optimizer.

    Args:
        model: the model.
        groups: the groups so far.
        group: the new group.
    """
    params = group.get("params")
    params = [params] if isinstance(params, Tensor) else list(params or ())
    if not groups or "param_names" not in groups[0] or any(isinstance(p, tuple) for p in params):
        return {**group, "params": params}
    names = {id(p): name for name, p in model.named_parameters()}
    start = sum(len(g["params"]) for g in groups)
    named = [(names.get(id(p), f"parameter {start + i}"), p) for i, p in enumerate(params)]
    return {**group, "params": named}


class ModelWatch:
    """Detects that a model was changed after its optimizer was created."""

    def __init__(self, model: nn.Module) -> None:
        """Store the names of the parameters.

        Args:
            model: the model.
        """
        self.model = model
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.kinds: list[tuple[torch.dtype, torch.device]] | None = None

    def refuse_sparse(self, params: Iterable[Tensor]) -> None:
        """Raise RuntimeError if a gradient is sparse; the rules need every entry."""
        for param in params:
            if param.grad is not None and param.grad.layout != torch.strided:
                name = self.names.get(id(param))
                raise RuntimeError(
                    f"the gradient of {name!r} is sparse, which SNOpt does not support; create the "
                    "layer with sparse=False, or train it with torch.optim.SparseAdam and pass the "
                    "other parameters: SNOpt(model, params=...)"
                )

    def check(self) -> None:
        """Raise an error if parameters were replaced, added, removed, cast or moved.

        A model may be cast and moved until the first step.
        """
        params = list(self.model.parameters())
        kinds = [(p.dtype, p.device) for p in params]
        same = len(params) == len(self.names) and all(id(p) in self.names for p in params)
        if same and self.kinds is None:
            self.kinds = kinds
        if same and kinds == self.kinds:
            return
        now = {id(p): name for name, p in self.model.named_parameters()}
        gone = [name for key, name in self.names.items() if key not in now]
        new = [name for key, name in now.items() if key not in self.names]
        changes = [
            f"{', '.join(names)} {how}" for names, how in ((gone, "gone"), (new, "new")) if names
        ]
        raise RuntimeError(
            f"the model was changed after the optimizer was created ("
            f"{'; '.join(changes) or 'parameters were cast or moved'}); its factors and "
            "moments belong to the old parameters. Create a new SNOpt"
        )
