r"""A fast tanh for compiled steps.

For float32 on a CPU the compiler calls a library function, which takes longer than the matrix
product of a small layer. A rational function is accurate enough:

.. math::
    \tanh x \approx x \, \frac{P(x^2)}{Q(x^2)}, \qquad \deg P = \deg Q = 4,

with the smallest maximal relative error for :math:`|x| \le 9`, 2e-8. All coefficients are
positive, so nothing cancels: the relative error including rounding is below 4e-7.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph

#: Above this bound tanh is 1 in float32; the rational function is clamped to 1.
_BOUND = 9.25
#: Coefficients, highest power first.
_P = (1.3354639538456776e-8, 2.0609064136330673e-5, 3.495586905501307e-3, 0.13381024564813991, 1.0)
_Q = (7.776548649178808e-7, 3.2856329062253968e-4, 2.5876977412900205e-2, 0.46714340155170084, 1.0)


def rational_tanh(x: Tensor) -> Tensor:
    """Return the tanh of a float32 tensor by a rational function; NaN stays NaN.

    Example:
        >>> x = torch.tensor([-20.0, 0.0, 0.5])
        >>> torch.allclose(rational_tanh(x), torch.tanh(x), rtol=4e-7, atol=0.0)
        True
    """
    x = x.clamp(-_BOUND, _BOUND)
    u = x * x
    return (x * (_polynomial(_P, u) / _polynomial(_Q, u))).clamp(-1.0, 1.0)


def _polynomial(coefficients: tuple[float, ...], u: Tensor) -> Tensor:
    first, second, *rest = coefficients
    total = first * u + second
    for c in rest:
        total = total * u + c
    return total


def replace_tanh(graph: Graph) -> None:
    """Replace tanh by :func:`rational_tanh` in an ATen graph, for float32 on a CPU."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default):
        value, (x,) = node.meta["val"], node.args
        if value.dtype == torch.float32 and value.device.type == "cpu":
            traced = make_fx(rational_tanh, select_decomp_table())(x.meta["val"]).graph
            (placeholder,) = traced.find_nodes(op="placeholder")
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.graph_copy(traced, {placeholder: x}))
            graph.erase_node(node)
