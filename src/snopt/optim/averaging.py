"""Schedule-free averaging: the place of momentum and of a learning-rate schedule."""

from __future__ import annotations

from typing import Any

from torch import Tensor

__all__ = ["averaged_step_", "forget_average", "share_of"]


def share_of(state: dict[str, Any], lr: float) -> float:
    """Count one step of a parameter, and give its share in the average.

        c_k = w_k / (w_1 + ... + w_k),    w_k = k² (largest learning rate so far)²

    The average forgets the beginning: half of it are the latest fifth of the steps. Steps of a
    warm-up count for less; a rate that sinks later does not make steps count for less.

    Args:
        state: the parameter's state, where the sums are kept.
        lr: the learning rate of this step.

    Example:
        >>> state = {}
        >>> [round(share_of(state, 0.1), 3) for _ in range(4)]
        [1.0, 0.8, 0.643, 0.533]
    """
    count = state["count"] = state.get("count", 0) + 1
    top = state["top_lr"] = max(lr, state.get("top_lr", 0.0))
    weight = (count * top) ** 2
    state["averaged"] = state.get("averaged", 0.0) + weight
    return float(weight / state["averaged"]) if weight else 1.0


def averaged_step_(
    y: Tensor, z: Tensor, direction: Tensor, *, lr: float, momentum: float, share: float
) -> None:
    """Take one step of the schedule-free method (Defazio et al. 2024), in place.

        z ← z - η d,    x ← (1 - c) x + c z,    y = (1 - β) z + β x

    The fast sequence z takes the steps, x is its average, and gradients are taken at y between
    them, which is what the parameters hold. x need not be stored: solved for y,

        y ← (1 - c) y + c z - η (1 - β (1 - c)) d.

    The average takes the place of momentum, and makes the steps of y shorter and shorter, as a
    schedule would. With β = 0, y is z.

    Args:
        y: the parameter.
        z: its fast sequence.
        direction: d, evaluated at y.
        lr: η.
        momentum: β.
        share: c.
    """
    y.lerp_(z, share).add_(direction, alpha=-lr * (1 - momentum * (1 - share)))
    z.add_(direction, alpha=-lr)


def forget_average(param: Tensor, state: dict[str, Any]) -> None:
    """Start the average of a parameter afresh from where it is.

    Args:
        param: the parameter.
        state: its state.
    """
    if "fast" in state:
        state["fast"].copy_(param)
        state["count"], state["averaged"] = 0, 0.0
