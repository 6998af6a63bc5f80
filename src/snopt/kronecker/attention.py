"""Readings of multi-head attention; see :mod:`snopt.kronecker.composite`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.kronecker.calls import Arguments, Gradients
from snopt.kronecker.linear import append_one
from snopt.kronecker.readings import Reading, pulled

__all__ = ["attention_matrices", "attention_readings"]

_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)


def attention_matrices(module: nn.MultiheadAttention) -> dict[str, str]:
    """Return the names of the matrices; none with dropout, whose mask is not known afterwards."""
    if module.dropout:
        return {}
    if module._qkv_same_embed_dim:
        return {"in_proj_weight": "in_proj_bias", "out_proj.weight": "out_proj.bias"}
    # The three matrices share one bias parameter, which no view of a single matrix can cover.
    return {**{f"{w}_proj_weight": "" for w in "qkv"}, "out_proj.weight": "out_proj.bias"}


def attention_readings(
    module: nn.MultiheadAttention, arguments: Arguments, gradients: Gradients
) -> list[Reading]:
    """Recompute the attention without the projections, and pull gradients back."""
    dtype = module.out_proj.weight.dtype
    options = _options(module, arguments)
    z = [options.pop(name) for name in ("query", "key", "value")]
    batched = z[0].dim() == 3
    g_out, *g_weights = gradients
    if module.batch_first and batched:
        z = [x.transpose(0, 1) for x in z]
        g_out = None if g_out is None else g_out.transpose(0, 1)
    products = _projected(module, z)
    context, weights = _attention(module, products, options)
    out = functional.linear(context, module.out_proj.weight.detach())
    g_out = torch.zeros_like(out) if g_out is None else g_out
    outputs = [out] if weights is None else [out, weights]
    g = pulled(outputs, [g_out, *g_weights], products)

    def batch_first(x: Tensor) -> Tensor:
        return x.detach().transpose(0, 1) if batched else x.detach()[None]

    z, g = [batch_first(x) for x in z], [batch_first(x) for x in g]
    last = ("out_proj.weight", batch_first(context), batch_first(g_out.to(dtype)))
    if module._qkv_same_embed_dim:
        return [("in_proj_weight", *_stacked(z, g)), last]
    return [*((f"{w}_proj_weight", x, y) for w, x, y in zip("qkv", z, g, strict=True)), last]


def _options(module: nn.MultiheadAttention, arguments: Arguments) -> dict[str, Any]:
    """Return the call's arguments by name; inputs and masks in the precision of the weights."""
    given = _SIGNATURE.bind(None, *arguments[0], **arguments[1])
    given.apply_defaults()
    dtype = module.out_proj.weight.dtype
    return {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in given.arguments.items()
        if name != "self"
    }


def _projected(module: nn.MultiheadAttention, z: list[Tensor]) -> list[Tensor]:
    """Return queries, keys and values as leaves of a graph."""
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    bias = module.in_proj_bias
    biases = [None] * 3 if bias is None else bias.chunk(3)
    with torch.no_grad():
        found = [functional.linear(x, W, b) for x, W, b in zip(z, weights, biases, strict=True)]
    return [product.requires_grad_() for product in found]


def _attention(
    module: nn.MultiheadAttention, products: list[Tensor], options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """Call torch's attention with identity projections; torch handles masks and options."""
    query, key, value = products
    eye = torch.eye(module.embed_dim, dtype=query.dtype, device=query.device)
    return functional.multi_head_attention_forward(
        query, key, value, module.embed_dim, module.num_heads, None, None,
        module.bias_k, module.bias_v, module.add_zero_attn, 0.0, eye, None,
        use_separate_proj_weight=True, q_proj_weight=eye, k_proj_weight=eye, v_proj_weight=eye,
        **options,
    )  # fmt: skip


def _stacked(z: list[Tensor], g: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return rows of the three projections as ``[3, batch, shared, features]``; see StackedView.

    If the numbers of queries and keys differ, rows of zeros fill the gap.
    """
    length = max(x.shape[1] for x in z)
    z, g = (
        [functional.pad(x, (0, 0, 0, length - x.shape[1])) for x in rows]
        for rows in (map(append_one, z), g)
    )
    return torch.stack(z), torch.stack(g)
