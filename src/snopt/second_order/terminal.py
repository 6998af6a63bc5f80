"""Curvature of the loss with respect to the model's outputs: Q_xx(t1) as Σ y_i y_iᵀ.

Proposition 2 starts from a sum of R outer products at the terminal time. The default of the
paper's Remark takes R = 1 and the gradient itself, y = Φ_x, which is there for free. For two
losses the exact factor is known (``"ggn"``), or one draw from the model's own distribution
gives it in expectation (``"sampled"``).

Each factor is returned as it would reach the model's outputs from a *mean* over the batch, that
is, divided by N: it takes the place of the loss gradient in a backward pass.
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
    """Exact factors of the loss's Hessian with respect to the outputs.

    Cross-entropy of logits, R = C classes (``diag(p) - p pᵀ``):

        y_i = √p_i (e_i - p) / N

    Squared error averaged over all D outputs (``torch.nn.functional.mse_loss``), R = D
    (``2/D I``):

        y_i = √(2/D) e_i / N

    Args:
        outputs: the model's outputs, ``[N, C]``.
        loss: which loss follows them.

    Example:
        >>> y = torch.stack(ggn_factors(torch.zeros(1, 2), "cross_entropy"))[:, 0]
        >>> y.T @ y
        tensor([[ 0.2500, -0.2500],
                [-0.2500,  0.2500]])
    """
    if outputs.dim() != 2:
        raise ValueError(
            f"terminal='ggn' needs outputs of shape [batch, classes], got {tuple(outputs.shape)}: "
            "its factors would be one for each position and class; use terminal='sampled'"
        )
    outputs = outputs.detach()
    N, size = outputs.shape
    eye = torch.eye(size, dtype=outputs.dtype, device=outputs.device)
    if loss == "squared_error":
        return [eye[i].expand(N, size) * ((2 / size) ** 0.5 / N) for i in range(size)]
    p = functional.softmax(outputs, dim=1)
    return [p[:, i : i + 1].sqrt() * (eye[i] - p) / N for i in range(size)]


def sampled_factor(outputs: Tensor, loss: Loss, generator: torch.Generator) -> Tensor:
    """One draw of the gradient under the model's own distribution: E[y yᵀ] is the Hessian.

        cross-entropy: y = (p - e_c) / N, c ~ p;    squared error: y = √(2/D) ε / N, ε ~ N(0, I)

    Args:
        outputs: the model's outputs, ``[N, C, *positions]``; each position is drawn by itself.
        loss: which loss follows them.
        generator: the source of randomness, the caller's own, so that the model's is untouched.

    Example:
        >>> y = sampled_factor(torch.zeros(1, 2), "cross_entropy", torch.Generator())
        >>> y.abs()
        tensor([[0.5000, 0.5000]])
    """
    outputs = outputs.detach()
    N = outputs.shape[0]
    entries = outputs[0].numel()
    if loss == "squared_error":
        noise = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
        scaled: Tensor = noise.to(outputs.device) * ((2 / entries) ** 0.5 / N)
        return scaled
    p = functional.softmax(outputs, dim=1)
    rows = p.movedim(1, -1).reshape(-1, p.shape[1])
    drawn = torch.multinomial(rows.cpu(), 1, generator=generator)[:, 0].to(rows.device)
    one_hot = functional.one_hot(drawn, rows.shape[1]).to(rows.dtype)
    y = (rows - one_hot) / (N * entries / p.shape[1])
    drawn_gradient: Tensor = y.reshape(p.movedim(1, -1).shape).movedim(-1, 1)
    return drawn_gradient


def terminal_factors(
    outputs: Tensor, terminal: Terminal, loss: Loss, generator: torch.Generator
) -> list[Tensor]:
    """Return the factors to send back through the model; none for ``"gradient"``.

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
    """Find the leaves that outputs were computed from: where a backward pass ends.

    Parameters are leaves, and so is the start of a solve that nothing trainable precedes.

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
