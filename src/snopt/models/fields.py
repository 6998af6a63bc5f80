r"""Vector fields of the paper's models (``table:F-config``).

Every field is a module with ``forward(t, x)``; ``t`` is a 0-d tensor, and samples do not influence
each other. Fields of flows also have ``with_tangent(t, x, v)``, which returns F and the derivative
:math:`J v, J = \partial F / \partial x`, in one or more directions v of shape (..., batch, dim),
with an explicit formula. A divergence needs nothing else. It costs about twice the value alone, and
is a plain function of tensors that a compiler can trace. Values are computed by the layers and
tangents from their weights, so hooks on a layer see one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.base.errors import unknown

#: A value and its derivative in some direction.
Pair = tuple[Tensor, Tensor]


def _tanh(h: Tensor) -> Pair:
    x = torch.tanh(h)
    return x, 1.0 - x * x


def _softplus(h: Tensor) -> Pair:
    return functional.softplus(h), torch.sigmoid(h)


#: The activations of flows: functions from h to value and slope.
ACTIVATIONS: dict[str, Callable[[Tensor], Pair]] = {"tanh": _tanh, "softplus": _softplus}


class ConvField(nn.Module):
    """Two 3x3 convolutions with ReLU between them; time enters each as an additional channel.

    Example:
        >>> field = ConvField(4)
        >>> field(torch.tensor(0.5), torch.zeros(2, 4, 6, 6)).shape
        torch.Size([2, 4, 6, 6])
    """

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels + 1, channels, 3, padding=1)
        self.second = nn.Conv2d(channels + 1, channels, 3, padding=1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at images (batch, channels, height, width)."""
        time = t.to(x).expand(x.shape[0], 1, *x.shape[2:])
        x = torch.relu(self.first(torch.cat([time, x], dim=1)))
        return self.second(torch.cat([time, x], dim=1))  # type: ignore[no-any-return]


class TanhField(nn.Module):
    """Linear layers with tanh between them; does not depend on time.

    Args:
        dim: size of the state.
        width: size of the hidden layers; default ``dim``.
        depth: number of linear layers.

    Example:
        >>> field = TanhField(32)
        >>> len(field.layers), field(torch.tensor(0.0), torch.zeros(5, 32)).shape
        (4, torch.Size([5, 32]))
    """

    def __init__(self, dim: int, width: int | None = None, depth: int = 4) -> None:
        super().__init__()
        sizes = [dim, *[width or dim] * (depth - 1), dim]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at states (batch, dim)."""
        *inner, last = self.layers
        for layer in inner:
            x = torch.tanh(layer(x))
        return last(x)  # type: ignore[no-any-return]


class ConcatSquashLinear(nn.Module):
    r"""A linear layer scaled and shifted by time: :math:`(W x + b)\,\sigma(g t + c) + d t`.

    Example:
        >>> layer = ConcatSquashLinear(8, 160)
        >>> sum(p.numel() for p in layer.parameters())      # 8 · 160 + 4 · 160
        1920
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gate = nn.Linear(1, outputs)
        self.shift = nn.Linear(1, outputs, bias=False)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the layer at inputs (batch, inputs)."""
        return self._with_gate(t, x)[0]

    def with_tangent(self, t: Tensor, x: Tensor, v: Tensor) -> Pair:
        """Evaluate the layer and its derivative in the directions ``v``."""
        value, gate = self._with_gate(t, x)
        return value, functional.linear(v, self.linear.weight) * gate

    def _with_gate(self, t: Tensor, x: Tensor) -> Pair:
        time = t.to(x).reshape(1)
        gate = torch.sigmoid(self.gate(time))
        return torch.addcmul(self.shift(time), self.linear(x), gate), gate


class ConcatSquashField(nn.Module):
    """Concat-squash layers with tanh or softplus between them, used for Gas and Miniboone.

    Args:
        dim: size of the state.
        hidden: sizes of the hidden layers.
        activation: ``"tanh"`` or ``"softplus"``.

    Example:
        >>> field = ConcatSquashField(8, (160, 160, 160))
        >>> sum(p.numel() for p in field.parameters())
        55712
    """

    def __init__(self, dim: int, hidden: Sequence[int], activation: str = "tanh") -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise unknown("activation", activation, ACTIVATIONS)
        self.activation = activation
        sizes = [dim, *hidden, dim]
        self.layers = nn.ModuleList(ConcatSquashLinear(a, b) for a, b in pairwise(sizes))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points (batch, dim)."""
        *inner, last = self.layers
        for layer in inner:
            x, _ = ACTIVATIONS[self.activation](layer(t, x))
        return last(t, x)  # type: ignore[no-any-return]

    def with_tangent(self, t: Tensor, x: Tensor, v: Tensor) -> Pair:
        """Evaluate the field and its derivative in the directions ``v``."""
        *inner, last = self.layers
        for layer in inner:
            x, v = layer.with_tangent(t, x, v)  # type: ignore[operator]
            x, slope = ACTIVATIONS[self.activation](x)
            v = v * slope
        return last.with_tangent(t, x, v)  # type: ignore[operator, no-any-return]


class HyperField(nn.Module):
    r"""A two-layer field with weights computed from time by a small network, used for Circle.

    .. math:: F(t, x) = \frac{1}{m} \sum_{i=1}^{m} u_i\,\sigma(g_i) \tanh(w_i^T x + b_i),

    where three linear layers with tanh between them compute w, b, u and g from ``t``. With 2
    dimensions and m = 64 it is the paper's ``Linear(2,64) -> Tanh -> Linear(64,2)``.

    Args:
        dim: size of the state.
        width: number m of terms.
        hidden: size of the hidden layers of the network that computes the weights.

    Example:
        >>> field = HyperField(2)
        >>> field(torch.tensor(1.0), torch.zeros(5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, dim: int, width: int = 64, hidden: int = 32) -> None:
        super().__init__()
        self.dim, self.width = dim, width
        self.first = nn.Linear(1, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, (3 * dim + 1) * width)

    def weights(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return w, (width, dim); b, (width); and u σ(g) / m, (dim, width)."""
        code = torch.tanh(self.first(t.reshape(1)))
        out = self.third(torch.tanh(self.second(code)))
        w, u, g = out[self.width :].reshape(3, self.width, self.dim)
        return w, out[: self.width], (u * torch.sigmoid(g)).T / self.width

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at points (batch, dim)."""
        w, b, u = self.weights(t.to(x))
        return functional.linear(torch.tanh(functional.linear(x, w, b)), u)

    def with_tangent(self, t: Tensor, x: Tensor, v: Tensor) -> Pair:
        """Evaluate the field and its derivative in the directions ``v``."""
        w, b, u = self.weights(t.to(x))
        h, slope = _tanh(functional.linear(x, w, b))
        return functional.linear(h, u), functional.linear(functional.linear(v, w) * slope, u)
