"""The validated configuration of an optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, get_args

from torch import Tensor, nn

from snopt.base.errors import check_count, unknown
from snopt.kronecker import KroneckerOptions
from snopt.optim.coverage import Scope
from snopt.optim.guard import OnDivergence
from snopt.optim.update import Rule

__all__ = [
    "Config", "RULE_DEFAULTS", "check_arguments", "checked_group", "group_defaults", "refresh_gap",
]  # fmt: skip

#: Defaults that depend on the rule, chosen by measurement (docs/optimizer.md).
RULE_DEFAULTS: dict[str, dict[str, float]] = {
    "adam": {
        "lr": 2e-2, "momentum": 0.9, "damping": 1e-6, "decay": 0.999, "weight_decay": 0.3,
        "fallback_lr": 2e-2,
    },
    "amortized": {
        "lr": 2e-2, "momentum": 0.9, "damping": 0.05, "decay": 0.75, "weight_decay": 0.0,
        "fallback_lr": 1e-3,
    },
    "kronecker": {
        "lr": 5e-3, "momentum": 0.9, "damping": 0.05, "decay": 0.0, "weight_decay": 0.0,
        "fallback_lr": 1e-3,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """Settings of the whole optimizer (settings of a parameter group are in the group).

    Attributes:
        rule: update rule in the eigenbasis.
        refresh_every: the longest interval between refreshes, in iterations.
        refresh_first: the first interval; later ones grow.
        scope: which layers are covered.
        curvature: how factors are formed.
        on_divergence: what to do when a gradient is not finite.
    """

    rule: Rule = "adam"
    refresh_every: int = 100
    refresh_first: int = 5
    scope: Scope = "all"
    curvature: KroneckerOptions = field(default_factory=KroneckerOptions)
    on_divergence: OnDivergence = "skip"

    def __post_init__(self) -> None:
        """Validate all settings."""
        choices: dict[str, Any] = {"rule": Rule, "scope": Scope, "on_divergence": OnDivergence}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise unknown(name, getattr(self, name), get_args(kind))
        for name in ("refresh_every", "refresh_first"):
            check_count(name, getattr(self, name), " iteration")
        if not isinstance(self.curvature, KroneckerOptions):
            raise TypeError(
                f"curvature={self.curvature!r} must be snopt.KroneckerOptions(...), not a "
                f"{type(self.curvature).__name__}"
            )


def check_arguments(model: object, params: object) -> None:
    """Raise a TypeError with the correct call for common mistakes.

    Args:
        model: must be a module.
        params: must be parameters, groups of them, or None.

    Example:
        >>> check_arguments(nn.Linear(1, 1).parameters(), None)
        Traceback (most recent call last):
        ...
        TypeError: model is a generator, not a module; SNOpt registers hooks on the layers, ...
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is a {type(model).__name__}, not a module; SNOpt registers hooks on the "
            "layers, so pass the model: SNOpt(model, lr=...), or SNOpt(model, params=...) to train "
            "a part of it"
        )
    if isinstance(params, (int, float)):
        raise TypeError(
            f"params is {params}, a number; pass the learning rate by keyword: "
            f"SNOpt(model, lr={params})"
        )


def group_defaults(rule: Rule, given: dict[str, float | None]) -> dict[str, float]:
    """Fill in default values, and validate all values.

    Args:
        rule: the rule.
        given: ``lr``, ``momentum``, ``damping``, ``decay``, ``weight_decay``, ``fallback_lr``.

    Returns:
        the defaults of a parameter group; ``fallback_ratio`` is the fallback's learning rate
        divided by ``lr``, so a scheduler changes both.

    Example:
        >>> group_defaults("amortized", {"lr": 0.1})["fallback_ratio"]
        0.01
    """
    values = {name: v for name, v in given.items() if v is not None}
    chosen = "fallback_lr" in values
    if rule == "adam" and "lr" in values:
        # The same rule in other coordinates, so the same learning rate is suitable.
        values.setdefault("fallback_lr", values["lr"])
    values = {**RULE_DEFAULTS[rule], **values}
    _check_values(values)
    fallback_lr = values.pop("fallback_lr")
    # With lr=0 from the start, a fallback_lr that was not chosen is 0 too.
    values["fallback_ratio"] = _ratio(fallback_lr, values["lr"]) if chosen or values["lr"] else 1.0
    return values


#: Arguments of the constructor that cannot differ between parameter groups.
_COMMON = frozenset(
    {"rule", "refresh_every", "refresh_first", "scope", "curvature", "fields", "on_divergence"}
)


def checked_group(group: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return a user's parameter group with valid values and ``fallback_ratio``.

    Args:
        group: the group; its values replace the defaults.
        defaults: defaults of all groups.

    Raises:
        TypeError: the group has an argument that holds for the whole optimizer.
        ValueError: a value is out of range.

    Example:
        >>> checked_group({"params": [], "fallback_lr": 0.1}, {"lr": 0.2})
        {'params': [], 'fallback_ratio': 0.5}
    """
    for name in _COMMON.intersection(group):
        raise TypeError(
            f"a parameter group has {name}={group[name]!r}, which holds for the whole optimizer; "
            f"pass it to the constructor: SNOpt(model, params=[...], {name}=...)"
        )
    _check_values(group)
    if "fallback_lr" not in group:
        return group
    group = dict(group)
    group["fallback_ratio"] = _ratio(group.pop("fallback_lr"), group.get("lr", defaults["lr"]))
    return group


def _check_values(values: dict[str, Any]) -> None:
    """Raise ValueError for values of a group that are out of range."""
    for name in RULE_DEFAULTS["adam"].keys() & values.keys():
        value: Any = values[name]
        if not isinstance(value, (Real, Tensor)):
            raise TypeError(f"{name}={value!r} must be a number, not a {type(value).__name__}")
        if not float(value) >= 0:
            raise ValueError(f"{name}={value} must not be negative")
        if not float(value) < math.inf:
            raise ValueError(f"{name}={value} must be finite")
    for name in ("momentum", "decay"):
        if name in values and not values[name] < 1:
            raise ValueError(f"{name}={values[name]} must be below 1, or old values never decay")


def _ratio(fallback_lr: float, lr: float) -> float:
    if not lr and fallback_lr:
        raise ValueError(
            f"fallback_lr={fallback_lr} with lr={lr}: it is kept as a multiple of lr, because "
            "schedulers scale both, so lr must be positive; to train only the other parameters, "
            "call requires_grad_(False) on the covered layers"
        )
    return fallback_lr / lr if lr else 1.0


def refresh_gap(iteration: int, first: int, every: int) -> int:
    """Return the number of iterations from one refresh to the next.

    Curvature changes fastest at the start, so the gap starts at ``first`` and grows to ``every``;
    in between it is a tenth of the iterations so far.

    Example:
        >>> [refresh_gap(i, 5, 100) for i in (0, 200, 2000)]
        [5, 20, 100]
        >>> refresh_gap(0, 5, 2)
        2
    """
    return min(every, max(first, iteration // 10))
