"""Adam for the parameters that no Kronecker factor covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from snopt.optim import rules
from snopt.optim.batching import alike

__all__ = ["fallback_step", "plain_directions"]

BETAS = (0.9, 0.999)
EPS = 1e-8


def plain_directions(
    params: Sequence[Tensor], states: Sequence[dict[str, Any]], *, decay: float, damping: float
) -> list[Tensor]:
    """Return the directions of the rule ``adam`` without a change of basis.

    Args:
        params: parameters with gradients.
        states: their states, filled at the first step.
        decay: β₂.
        damping: ε.
    """
    gradients = [_real_gradient(param) for param in params]
    for state, gradient in zip(states, gradients, strict=True):
        if "plain_square" not in state:
            state["plain_square"], state["plain_step"] = torch.zeros_like(gradient), 0
        state["plain_step"] += 1
    found = list(gradients)
    for batch in alike(gradients, [state["plain_step"] for state in states]):
        out, squares = rules.adam(
            [gradients[i] for i in batch], [states[i]["plain_square"] for i in batch],
            step=states[batch[0]]["plain_step"], decay=decay, damping=damping,
        )  # fmt: skip
        for i, X, square in zip(batch, out, squares, strict=True):
            states[i]["plain_square"] = square
            found[i] = X
    return [
        torch.view_as_complex(X) if param.is_complex() else X.to(param.dtype)
        for param, X in zip(params, found, strict=True)
    ]


def _real_gradient(param: Tensor) -> Tensor:
    """Return the gradient as real numbers, in single precision at least."""
    assert param.grad is not None
    gradient = torch.view_as_real(param.grad) if param.is_complex() else param.grad
    return gradient.to(torch.promote_types(gradient.dtype, torch.float32))


def fallback_step(
    params: list[Tensor], states: list[dict[str, Any]], lr: float, weight_decay: float
) -> None:
    """Take one step of Adam; gradients are read from the parameters.

    Args:
        params: parameters with gradients.
        states: their states, filled at the first step.
        lr: learning rate.
        weight_decay: γ, added to the gradient as γ θ.

    Example:
        >>> p = torch.zeros(1)
        >>> p.grad = torch.ones(1)
        >>> fallback_step([p], [{}], lr=0.1, weight_decay=0.0)
        >>> p
        tensor([-0.1000])
    """
    if not params:
        return
    for param, state in zip(params, states, strict=True):
        if "exp_avg" not in state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(param)
            state["exp_avg_sq"] = torch.zeros_like(param)
    adam(
        params,
        [param.grad for param in params if param.grad is not None],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        has_complex=any(torch.is_complex(param) for param in params),
        amsgrad=False,
        beta1=BETAS[0],
        beta2=BETAS[1],
        lr=lr,
        weight_decay=weight_decay,
        eps=EPS,
        maximize=False,
    )
