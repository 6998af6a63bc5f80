"""Checkpoints: match parameters by name, keep precision, check compatibility."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snopt.optim.config import Config

__all__ = ["STATE_VERSION", "checked_extra", "in_our_order", "on_device"]


#: Version of the state; increased when the meaning of its tensors changes.
STATE_VERSION = 2


def checked_extra(state_dict: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Return the ``"snopt"`` entry of a state; raise an error if it is incompatible.

    Args:
        state_dict: a saved state.
        config: configuration of this optimizer.
    """
    extra: dict[str, Any] | None = state_dict.get("snopt")
    if extra is None:
        raise ValueError(
            "the state has no 'snopt' entry, so it was not saved by SNOpt and cannot be "
            "loaded; start with a new optimizer"
        )
    version = extra.get("version", 1)
    if version != STATE_VERSION:
        raise ValueError(
            f"the state has version {version}, but this release of snopt uses version "
            f"{STATE_VERSION}, whose moments are not compatible; start with a new optimizer, or "
            "load the state with the release that saved it"
        )
    mine = {"rule": config.rule, "conv": config.curvature.conv}
    for name, value in mine.items():
        if extra[name] != value:
            raise ValueError(
                f"the state was saved with {name}={extra[name]!r}, but this optimizer has "
                f"{name}={value!r}, whose moments are not compatible; create it with "
                f"{name}={extra[name]!r}"
            )
    return extra


def in_our_order(state_dict: dict[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Reorder a saved state to match parameters by name instead of position.

    A state without names, or with other names, is returned unchanged.

    Args:
        state_dict: a saved state.
        groups: this optimizer's parameter groups.
    """
    saved = state_dict["param_groups"]
    unnamed = any(group.get("param_names") is None for group in [*saved, *groups])
    if unnamed or len(saved) != len(groups):
        return state_dict
    position = {
        name: index
        for group in saved
        for name, index in zip(group["param_names"], group["params"], strict=True)
    }
    ours = [name for group in groups for name in group["param_names"]]
    if sorted(position) != sorted(ours):
        return state_dict
    old, numbers = state_dict["state"], iter(range(len(ours)))
    state = {i: old[position[name]] for i, name in enumerate(ours) if position[name] in old}
    names = [list(group["param_names"]) for group in groups]
    out = [
        {**group, "params": [next(numbers) for _ in own], "param_names": own}
        for group, own in zip(saved, names, strict=True)
    ]
    return {**state_dict, "state": state, "param_groups": out}


def on_device(value: Any, device: torch.device) -> Any:
    """Copy nested tensors to a device, each in its own dtype.

    ``step`` counters stay where torch keeps them, on the CPU.

    Example:
        >>> on_device({"a": [torch.ones(1)]}, torch.device("cpu"))
        {'a': [tensor([1.])]}
    """
    if isinstance(value, Tensor):
        return value.clone() if value.dim() == 0 else value.to(device, copy=True)
    if isinstance(value, dict):
        return {key: on_device(item, device) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [on_device(item, device) for item in value]
    return value
