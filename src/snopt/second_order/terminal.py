"""Curvature of the loss with respect to the model's outputs: Q_xx(t1) as Σ y_i y_iᵀ.

Proposition 2 starts from a sum of R outer products at the terminal time. The default of the paper's
Remark takes R = 1 and the gradient itself, y = Φ_x, which costs nothing. For two losses the exact
factor is known (``"ggn"``), or one draw from the model's distribution gives it in expectation
(``"sampled"``).

Factors are scaled for a *mean* over the batch, that is, divided by N: a factor replaces the loss
gradient in a backward pass.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "Loss",
    "Terminal",
    "ggn_factors",
    "leaves_of",
    "sampled_factor",
    "terminal_factors",
]

Terminal: TypeAlias = Literal["gradient", "ggn", "sampled"]
Loss: TypeAlias = Literal["cross_entropy", "squared_error"]


def ggn_factors(outputs: Tensor, loss: Loss) -> list[Tensor]:
    r"""Return exact factors of the loss's Hessian with respect to the outputs, ``[N, C]``.

    Cross-entropy of logits, and squared error averaged over all D = C outputs
    (``torch.nn.functional.mse_loss``), both with R = C:

    .. math::
        \operatorname{diag}(p) - p p^\top: \; y_i = \sqrt{p_i}\, (e_i - p) / N, \qquad
        \tfrac 2D I: \; y_i = \sqrt{2/D}\, e_i / N .

    Example:
        >>> y = torch.stack(ggn_factors(torch.zeros(1, 2), "cross_entropy"))[:, 0]
        >>> y.T @ y
        tensor([[ 0.2500, -0.2500],
                [-0.2500,  0.2500]])
    """
    if outputs.dim() != 2:
        raise ValueError(
            f"terminal='ggn' needs outputs of shape [batch, classes], got {tuple(outputs.shape)}: "
            "it would need one factor per position and class; use terminal='sampled'"
        )
    outputs = outputs.detach()
    N, size = outputs.shape
    eye = torch.eye(size, dtype=outputs.dtype, device=outputs.device)
    if loss == "squared_error":
        return [eye[i].expand(N, size) * ((2 / size) ** 0.5 / N) for i in range(size)]
    p = functional.softmax(outputs, dim=1)
    return [p[:, i : i + 1].sqrt() * (eye[i] - p) / N for i in range(size)]


def sampled_factor(outputs: Tensor, loss: Loss, generator: torch.Generator) -> Tensor:
    r"""Draw the gradient under the model's own distribution: E[y yᵀ] is the Hessian.

    For cross-entropy and squared error,

    .. math::
        y = (p - e_c) / N, \; c \sim p, \qquad
        y = \sqrt{2/D}\, \epsilon / N, \; \epsilon \sim N(0, I) .

    Args:
        outputs: the model's outputs, ``[N, C, *positions]``; positions are drawn independently.
        loss: the loss of these outputs.
        generator: source of randomness; the global one is not used.

    Example:
        >>> y = sampled_factor(torch.zeros(1, 2), "cross_entropy", torch.Generator())
        >>> y.abs()
        tensor([[0.5000, 0.5000]])
    """
    outputs = outputs.detach()
    N, entries = outputs.shape[0], outputs[0].numel()
    y: Tensor
    if loss == "squared_error":
        noise = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
        y = noise.to(outputs.device) * ((2 / entries) ** 0.5 / N)
        return y
    p = functional.softmax(outputs, dim=1).movedim(1, -1)
    rows = p.reshape(-1, p.shape[-1])
    drawn = torch.multinomial(rows.cpu(), 1, generator=generator)[:, 0].to(rows.device)
    one_hot = functional.one_hot(drawn, rows.shape[1]).to(rows.dtype)
    y = (rows - one_hot) / (N * entries / rows.shape[1])
    return y.reshape(p.shape).movedim(-1, 1)


def terminal_factors(
    outputs: Tensor, terminal: Terminal, loss: Loss, generator: torch.Generator
) -> list[Tensor]:
    """Return the factors to pull back through the model; none for ``"gradient"``.

    Example:
        >>> terminal_factors(torch.zeros(1, 3), "gradient", "cross_entropy", torch.Generator())
        []
    """
    if terminal == "gradient":
        return []
    if terminal == "sampled":
        return [sampled_factor(outputs, loss, generator)]
    return ggn_factors(outputs, loss)


def leaves_of(outputs: Tensor) -> list[Tensor]:
    """Return the leaves of the graph of the outputs, where a backward pass ends.

    Parameters are leaves, and so is the initial state of a solve without trainable layers before.

    Example:
        >>> layer = torch.nn.Linear(1, 1)
        >>> len(leaves_of(layer(torch.ones(1, 1))))
        2
    """
    found: list[Tensor] = []
    seen: set[Any] = set()
    stack = [outputs.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            found.append(node.variable)  # type: ignore[attr-defined]
        stack += [before for before, _ in node.next_functions]
    return found
