"""Schedule-free averaging, which replaces momentum and a learning-rate schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

__all__ = [
    "averaged_step_", "cautious_decay", "forget_average", "hide_averages", "move_",
    "refuse_averages", "share_and_lr", "show_averages",
]  # fmt: skip

#: Number of warm-up steps of the learning rate.
WARM_UP = 20


def share_and_lr(state: dict[str, Any], lr: float) -> tuple[float, float]:
    """Count one step of a parameter; return its share in the average and its learning rate.

        η_k = η min(1, k / 20),    c_k = w_k / (w_1 + ... + w_k),    w_k = k² (max_{i ≤ k} η_i)²

    The first steps are shorter, because the second moment is estimated from few gradients. The
    average forgets the first steps: the latest fifth of the steps makes up half of it. A learning
    rate that decreases later does not reduce the weights.

    Args:
        state: the parameter's state, where the sums are kept.
        lr: η.

    Example:
        >>> state = {}
        >>> [share_and_lr(state, 1.0) for _ in range(2)]
        [(1.0, 0.05), (0.9411764705882353, 0.1)]
    """
    count = state["count"] = state.get("count", 0) + 1
    lr = lr * min(1.0, count / WARM_UP)
    top = state["top_lr"] = max(lr, state.get("top_lr", 0.0))
    weight = (count * top) ** 2
    state["averaged"] = state.get("averaged", 0.0) + weight
    return (weight / state["averaged"] if weight else 1.0), lr


def averaged_step_(
    y: Tensor, z: Tensor, direction: Tensor, *, lr: float, momentum: float, share: float
) -> None:
    """Take one step of the schedule-free method (Defazio et al. 2024), in place.

        z ← z - η d,    x ← (1 - c) x + c z,    y = (1 - β) z + β x

    The fast sequence z takes the steps, x is its average, and gradients are evaluated at y, which
    is stored in the parameters. x need not be stored; y is updated directly:

        y ← (1 - c) y + c z - η (1 - β (1 - c)) d.

    Averaging replaces momentum, and the steps of y become shorter, as with a schedule. With β = 0,
    y is z.

    Args:
        y: the parameter.
        z: its fast sequence.
        direction: d, evaluated at y.
        lr: η_k.
        momentum: β.
        share: c.
    """
    y.lerp_(z, share).add_(direction, alpha=-lr * (1 - momentum * (1 - share)))
    z.add_(direction, alpha=-lr)


def cautious_decay(direction: Tensor, param: Tensor, weight_decay: float) -> Tensor:
    """Lengthen steps that go towards zero, in proportion to the distance.

        d ← d (1 + γ max(0, sign(d) y))

    For a noisy gradient this is a weight decay: steps to both sides are equally frequent, and those
    towards zero are longer. Like the cautious weight decay of Chen et al. (2025), it never acts
    against a step. Unlike it, it vanishes with the step. Only weights decay: tensors with two or
    more axes.

    Args:
        direction: d, to be subtracted.
        param: y.
        weight_decay: γ.

    Example:
        >>> import torch
        >>> cautious_decay(torch.tensor([[0.5, -0.5]]), torch.tensor([[2.0, 2.0]]), 0.1)
        tensor([[ 0.6000, -0.5000]])
    """
    if not weight_decay or param.dim() < 2:
        return direction
    distance = direction.sgn().conj() * param
    distance = distance.real if param.is_complex() else distance
    return direction * distance.clamp_min_(0).mul_(weight_decay).add_(1)


def move_(
    param: Tensor,
    state: dict[str, Any],
    direction: Tensor,
    lr: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Move a parameter against a direction, with warm-up, averaging and weight decay.

    Args:
        param: the parameter.
        state: its state, filled at the first step.
        direction: d.
        lr: η.
        momentum: β.
        weight_decay: γ; see :func:`cautious_decay`.
    """
    direction = cautious_decay(direction, param, weight_decay)
    if "fast" not in state:
        state["fast"] = param.detach().clone()
    share, lr = share_and_lr(state, lr)
    averaged_step_(param, state["fast"], direction, lr=lr, momentum=momentum, share=share)


def forget_average(param: Tensor, state: dict[str, Any]) -> None:
    """Restart the average of a parameter from its current value.

    Args:
        param: the parameter.
        state: its state.
    """
    if "fast" in state:
        state["fast"].copy_(param)
        state["count"], state["averaged"] = 0, 0.0


def show_averages(groups: Iterable[Mapping[str, Any]], states: Mapping[Tensor, Any]) -> None:
    """Replace the parameters y by the averages x, and keep y in the states.

        x = y - (1 - β) / β (z - y)

    Args:
        groups: parameter groups. With ``momentum`` β = 0, y is z, and x is not known: such a group
            does not change.
        states: the state of each parameter.
    """
    for group in groups:
        beta = group["momentum"]
        for param in group["params"]:
            state = states.get(param, {})
            if beta and "fast" in state and "point" not in state:
                state["point"] = param.detach().clone()
                param.lerp_(state["fast"], 1 - 1 / beta)


def hide_averages(states: Mapping[Tensor, Any]) -> None:
    """Undo :func:`show_averages` exactly."""
    for param, state in states.items():
        if "point" in state:
            param.copy_(state.pop("point"))


def refuse_averages(states: Mapping[Tensor, Any]) -> None:
    """Raise RuntimeError if parameters hold their averages."""
    if any("point" in state for state in states.values()):
        raise RuntimeError(
            "optimizer.eval() has put averaged weights into the model, so this gradient does not "
            "belong to the weights for training; call optimizer.train() before the forward pass"
        )
