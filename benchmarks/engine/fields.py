"""Vector fields of the benchmark workloads.

Every field is an ordinary ``nn.Module`` with ``forward(t, x)``; nothing here
knows which library integrates it. Time is one number, or one for each sample.

The flows' fields return ``(dx/dt, d log p/dt)`` with Hutchinson's estimate
``-eᵀ J e`` of the divergence, ``J = ∂F/∂x``, and come in two forms with the
same value:

* :class:`AutogradFlow` asks autograd for ``eᵀ J`` inside the field, which is
  how such flows are usually written;
* :class:`TangentFlow` pushes ``J e`` forward by hand through the layers, so
  the field is a plain function that a compiler can trace.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Pair = tuple[Tensor, Tensor]


def amplify(field: nn.Module, gain: float) -> None:
    """Multiply the weights of a field; a fresh one is almost linear, unlike a trained one."""
    with torch.no_grad():
        for name, parameter in field.named_parameters():
            if name.endswith("weight"):
                parameter.mul_(gain)


class ConvField(nn.Module):
    """``conv3x3 -> ReLU -> conv3x3``, time entering each as one more channel."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels + 1, channels, 3, padding=1)
        self.second = nn.Conv2d(channels + 1, channels, 3, padding=1)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at images ``x``, (batch, channels, height, width)."""
        return self.second(_with_time(t, functional.relu(self.first(_with_time(t, x)))))


def _with_time(t: Tensor, x: Tensor) -> Tensor:
    time = t.to(x).reshape(-1, 1, 1, 1).expand(x.shape[0], 1, x.shape[2], x.shape[3])
    return torch.cat((time, x), dim=1)


class TanhField(nn.Module):
    """Four linear layers with tanh between them; does not depend on time."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        hidden = [module for _ in range(3) for module in (nn.Linear(width, width), nn.Tanh())]
        self.net = nn.Sequential(*hidden, nn.Linear(width, width))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field at hidden states ``x``, (batch, width)."""
        return self.net(x)


class ConcatSquashLinear(nn.Module):
    """``(W x + b) * sigmoid(g t + c) + d t``: a linear layer gated by time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.gate = nn.Linear(1, outputs)
        self.shift = nn.Linear(1, outputs, bias=False)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the layer at ``x``, (batch, inputs)."""
        time = t.to(x).reshape(-1, 1)
        return self.linear(x) * torch.sigmoid(self.gate(time)) + self.shift(time)

    def with_tangent(self, t: Tensor, x: Tensor, v: Tensor) -> Pair:
        """Evaluate the layer at ``x`` and its derivative there in direction ``v``."""
        time = t.to(x).reshape(-1, 1)
        gate = torch.sigmoid(self.gate(time))
        value = self.linear(x) * gate + self.shift(time)
        return value, functional.linear(v, self.linear.weight) * gate


class SquashNet(nn.Module):
    """Concat-squash layers with tanh or softplus between them."""

    def __init__(self, sizes: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(ConcatSquashLinear, sizes[:-2], sizes[1:-1]))
        self.last = ConcatSquashLinear(sizes[-2], sizes[-1])
        self.activation = activation

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the network at ``x``, (batch, sizes[0])."""
        for layer in self.layers:
            x = layer(t, x)
            x = torch.tanh(x) if self.activation == "tanh" else functional.softplus(x)
        return self.last(t, x)

    def with_tangent(self, t: Tensor, x: Tensor, v: Tensor) -> Pair:
        """Evaluate the network at ``x`` and its derivative there along ``v``."""
        for layer in self.layers:
            x, v = layer.with_tangent(t, x, v)
            if self.activation == "tanh":
                x = torch.tanh(x)
                v = v * (1 - x * x)
            else:
                v = v * torch.sigmoid(x)
                x = functional.softplus(x)
        return self.last.with_tangent(t, x, v)


class Flow(nn.Module):
    """What both forms share: the network and the noise ``e``, fixed for a solve."""

    noise: Tensor

    def __init__(self, net: SquashNet, noise: Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("noise", noise)


class AutogradFlow(Flow):
    """A flow's field whose divergence is taken by autograd."""

    def forward(self, t: Tensor, state: Pair) -> Pair:
        """Evaluate ``(F, -eᵀ J e)`` at ``state = (x, log p)``."""
        x = state[0]
        keep_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            if not (keep_graph and x.requires_grad):
                x = x.detach().requires_grad_()
            dx = self.net(t, x)
            (e_jacobian,) = torch.autograd.grad(dx, x, self.noise, create_graph=keep_graph)
        divergence = (e_jacobian * self.noise).sum(dim=1)
        if not keep_graph:
            dx = dx.detach()
        return dx, -divergence


class TangentFlow(Flow):
    """A flow's field whose divergence is pushed forward by hand."""

    def forward(self, t: Tensor, state: Pair) -> Pair:
        """Evaluate ``(F, -eᵀ J e)`` at ``state = (x, log p)``."""
        dx, along_noise = self.net.with_tangent(t, state[0], self.noise)
        return dx, -(along_noise * self.noise).sum(dim=1)
