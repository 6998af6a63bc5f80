"""Schedule-free averaging, which replaces momentum and a learning-rate schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from snopt.optim.batching import alike

__all__ = [
    "averaged_step_", "cautious_decay", "fading", "forget_average", "hide_averages", "move_",
    "refuse_averages", "share_and_lr", "show_averages",
]  # fmt: skip

#: Number of warm-up steps of the learning rate.
WARM_UP = 20
#: Number of steps before the constant part of the weight decay fades.
FULL_DECAY = 300


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
    ys: list[Tensor],
    zs: list[Tensor],
    directions: list[Tensor],
    *,
    lr: float,
    momentum: float,
    share: float,
) -> None:
    """Take one step of the schedule-free method (Defazio et al. 2024), in place.

        z ← z - η d,    x ← (1 - c) x + c z,    y = (1 - β) z + β x

    The fast sequence z takes the steps, x is its average, and gradients are evaluated at y, which
    is stored in the parameters. x need not be stored; y is updated directly:

        y ← (1 - c) y + c z - η (1 - β (1 - c)) d.

    Averaging replaces momentum, and the steps of y become shorter, as with a schedule. With β = 0,
    y is z.

    Args:
        ys: parameters.
        zs: the fast sequence of each.
        directions: d of each, evaluated at y.
        lr: η_k.
        momentum: β.
        share: c.
    """
    torch._foreach_lerp_(ys, zs, share)
    torch._foreach_add_(ys, directions, alpha=-lr * (1 - momentum * (1 - share)))
    torch._foreach_add_(zs, directions, alpha=-lr)


def fading(count: int) -> float:
    """Return the factor of the constant part of the weight decay: min(1, 300 / k).

    The average changes more slowly with every step, and so does this decay. With a constant decay
    of matrices, the loss of a model that fitted its training data jumped (docs/optimizer.md).

    Example:
        >>> fading(200), fading(1200)
        (1.0, 0.25)
    """
    return min(1.0, FULL_DECAY / count)


def cautious_decay(
    directions: list[Tensor], params: list[Tensor], weight_decay: float, constant: float = 1.0
) -> list[Tensor]:
    """Add weight decay where it does not oppose the step, as Chen et al. (2025) do.

        d ← d + γ θ 1[d θ > 0] (|d| + φ (√K - 1))

    K is the number of positions of a convolution's kernel, and 1 for a matrix. For a matrix the
    decay is in proportion to the step, and vanishes with it. For a convolution it has a constant
    part too, so that weights shrink where a model already fits its training data. Only weights
    decay: tensors with two or more axes.

    Args:
        directions: d of each parameter, to be subtracted.
        params: parameters θ.
        weight_decay: γ.
        constant: φ; see :func:`fading`.

    Example:
        >>> cautious_decay([torch.tensor([[0.5, -0.5]])], [torch.tensor([[2.0, 2.0]])], 0.1)
        [tensor([[ 0.6000, -0.5000]])]
        >>> cautious_decay([torch.full((1, 1, 2, 2), 0.5)], [torch.ones(1, 1, 2, 2)], 0.1)[0][0, 0]
        tensor([[0.6500, 0.6500],
                [0.6500, 0.6500]])
    """
    found = list(directions)
    decaying = [i for i, param in enumerate(params) if param.dim() >= 2]
    if not weight_decay or not decaying:
        return found
    ds = [found[i] for i in decaying]
    along = _along(ds, [params[i] for i in decaying])
    torch._foreach_mul_(along, weight_decay)
    longer = torch._foreach_mul(ds, torch._foreach_add(along, 1))
    for i, out, d, part in zip(decaying, longer, ds, along, strict=True):
        if (kernel := _kernel(params[i])) > 1:
            out.add_(d.sgn() * part, alpha=constant * (kernel**0.5 - 1))
        found[i] = out
    return found


def _kernel(weight: Tensor) -> int:
    """Return K: the number of positions of the kernel of a weight ``[out, in, *kernel]``."""
    return weight.shape[2:].numel()


def _along(directions: list[Tensor], params: list[Tensor]) -> list[Tensor]:
    """Return |θ| where θ has the sign of d, and zero elsewhere.

    For complex numbers this is the part of θ along d.
    """
    if any(param.is_complex() for param in params):
        pairs = zip(directions, params, strict=True)
        found = [(d.sgn().conj() * y).real for d, y in pairs]
    else:
        found = list(torch._foreach_mul(torch._foreach_sign(directions), params))
    torch._foreach_clamp_min_(found, 0)
    return found


def move_(
    params: list[Tensor],
    states: Sequence[dict[str, Any]],
    directions: list[Tensor],
    lr: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Move parameters against directions, with warm-up, averaging and weight decay.

    Args:
        params: the parameters.
        states: their states, filled at the first step.
        directions: d of each.
        lr: η.
        momentum: β.
        weight_decay: γ; see :func:`cautious_decay`.
    """
    for param, state in zip(params, states, strict=True):
        if "fast" not in state:
            state["fast"] = param.detach().clone()
        _place_(param, state, momentum)
    steps = [(*share_and_lr(state, lr), fading(state["count"])) for state in states]
    for batch in alike(params, steps):
        share, rate, constant = steps[batch[0]]
        ys = [params[i] for i in batch]
        ds = cautious_decay([directions[i] for i in batch], ys, weight_decay, constant)
        zs = [states[i]["fast"] for i in batch]
        averaged_step_(ys, zs, ds, lr=rate, momentum=momentum, share=share)


def _place_(param: Tensor, state: dict[str, Any], momentum: float) -> None:
    """Move y between the same z and x as before if a scheduler has changed β.

    y ← z + β / β_old (y - z). After β_old = 0, y is z, and x is not known; it restarts at y.
    """
    old = state.get("momentum_y", momentum)
    state["momentum_y"] = momentum
    if old and momentum != old:
        param.lerp_(state["fast"], 1 - momentum / old)


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
        groups: parameter groups. β is the ``momentum`` of their latest step. With β = 0, y is z,
            and x is not known: such a parameter does not change.
        states: the state of each parameter.
    """
    for group in groups:
        for param in group["params"]:
            state = states.get(param, {})
            beta = state.get("momentum_y", group["momentum"])
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
