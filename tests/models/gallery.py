"""Kinds of models that users bring, each small enough to be trained in seconds.

A family is a function that returns a `Family`: its models (a GAN has two), the loss of each, drawn
anew at every call, and a number that should fall. `train` is the ordinary loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from snopt import NeuralODE
from snopt.models import exact

SOLVER = {"rtol": 1e-3, "atol": 1e-3}


@dataclass
class Family:
    models: list[nn.Module]
    losses: list[Callable[[], Tensor]]
    measure: Callable[[], Tensor]


FAMILIES: dict[str, Callable[[], Family]] = {}


def family(make: Callable[[], Family]) -> Callable[[], Family]:
    FAMILIES[make.__name__] = make
    return make


def train(
    found: Family, optimizer: Callable[[nn.Module], torch.optim.Optimizer], updates: int
) -> tuple[float, float, list[torch.optim.Optimizer]]:
    """Return the measure before and after, and the optimizers."""
    optimizers = [optimizer(model) for model in found.models]
    before = _measured(found)
    for _ in range(updates):
        for loss, own in zip(found.losses, optimizers, strict=True):
            own.zero_grad()
            loss().backward()
            own.step()
    return before, _measured(found), optimizers


def _measured(found: Family) -> float:
    with torch.random.fork_rng():
        torch.manual_seed(99)
        for model in found.models:
            model.eval()
        value = found.measure().item()
        for model in found.models:
            model.train()
    return value


def _mlp(*sizes: int) -> nn.Sequential:
    first, second, third = sizes
    return nn.Sequential(nn.Linear(first, second), nn.Tanh(), nn.Linear(second, third))


def rings(count: int) -> tuple[Tensor, Tensor]:
    """Points on two circles about the origin, and which circle each is on."""
    label = torch.arange(count) % 2
    angle = 2 * math.pi * torch.rand(count)
    radius = 0.5 + label + 0.1 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label


def _supervised(model: nn.Module, count: int = 128) -> Family:
    def loss() -> Tensor:
        x, label = rings(count)
        return cross_entropy(model(x), label)

    return Family([model], [loss], loss)


class Autonomous(nn.Module):
    """A field that ignores time."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.net(x)


# -------------------------------------------------------------------------------- families


@family
def latent_ode() -> Family:
    """A GRU reads a series backwards; the latent state follows an ODE; a linear layer decodes."""

    class LatentODE(nn.Module):
        def __init__(self, latent: int = 4, hidden: int = 16) -> None:
            super().__init__()
            self.encoder = nn.GRU(2, hidden, batch_first=True)
            self.start = nn.Linear(hidden, 2 * latent)
            self.block = NeuralODE(Autonomous(_mlp(latent, 24, latent)), **SOLVER)
            self.decoder = nn.Linear(latent, 1)

        def forward(self, x: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
            series = torch.cat([x, times.expand(len(x), -1)[..., None]], 2).flip(1)
            mean, log_std = self.start(self.encoder(series)[0][:, -1]).chunk(2, 1)
            z = mean + log_std.exp() * torch.randn_like(mean)
            kl = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(1).mean()
            return self.decoder(self.block(z, times)).transpose(0, 1), kl

    model = LatentODE()

    def loss() -> Tensor:
        times = torch.linspace(0, 1, 15)
        phase = 2 * math.pi * torch.rand(64, 1)
        x = torch.sin(2 * math.pi * times + phase)[..., None]
        y, kl = model(x + 0.05 * torch.randn_like(x), times)
        return (y - x).square().mean() + 1e-3 * kl

    return Family([model], [loss], loss)


@family
def conditioned_cnf() -> Family:
    """p(x | c) as a flow whose field receives c through ``context``."""

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp(5, 32, 2)

        def forward(
            self, t: Tensor, state: tuple[Tensor, Tensor], condition: Tensor
        ) -> tuple[Tensor, Tensor]:
            def velocity(t: Tensor, x: Tensor) -> Tensor:
                return self.net(torch.cat([x, condition, t.expand(len(x), 1)], 1))

            found = exact(velocity, t, state[0])
            return found.value, found.divergence

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(1, 2)
            self.block = NeuralODE(Field(), **SOLVER)

        def forward(self, x: Tensor, c: Tensor) -> Tensor:
            z, log_det = self.block((x, x.new_zeros(len(x))), context=self.embed(c))
            return -0.5 * z.square().sum(1) - math.log(2 * math.pi) + log_det

    model = Flow()

    def loss() -> Tensor:
        c = 2 * torch.rand(128, 1) - 1
        centre = torch.cat([torch.sin(2 * c), torch.cos(2 * c)], 1) * 1.5
        return -model(centre + 0.3 * torch.randn(128, 2), c).mean()

    return Family([model], [loss], loss)


@family
def hamiltonian() -> Family:
    """q' = ∂H/∂p, p' = -∂H/∂q with a learned H: the field contains a derivative of its own."""

    class Hamiltonian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = _mlp(2, 32, 1)

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            with torch.enable_grad():
                x = x if x.requires_grad else x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
            return torch.stack([slope[:, 1], -slope[:, 0]], 1)

    block = NeuralODE(Hamiltonian(), **SOLVER)

    def loss() -> Tensor:
        """A harmonic oscillator: the exact flow is a rotation."""
        x, times = torch.randn(64, 2), torch.linspace(0, 1.5, 4)
        c, s = times.cos()[:, None], times.sin()[:, None]
        truth = torch.stack([c * x[:, 0] + s * x[:, 1], c * x[:, 1] - s * x[:, 0]], 2)
        return mse_loss(block(x, times), truth)

    return Family([block], [loss], loss)


@family
def attention_field() -> Family:
    """Particles that attend to each other, [batch, particles, features]."""

    class Attention(nn.Module):
        def __init__(self, width: int = 16) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
            self.net = _mlp(width, 32, width)

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            return self.net(x + self.attention(x, x, x, need_weights=False)[0])

    block = NeuralODE(Attention(), **SOLVER)
    model = nn.Sequential(nn.Linear(2, 16), block, nn.Linear(16, 2))

    def loss() -> Tensor:
        """Move every particle to its reflection through the mean of its set."""
        x = torch.randn(32, 5, 2)
        return mse_loss(model(x), 2 * x.mean(1, keepdim=True) - x)

    return Family([model], [loss], loss)


@family
def graph_field() -> Family:
    """Messages along the edges of a fixed graph, [batch, nodes, features]."""

    class Graph(nn.Module):
        def __init__(self, nodes: int = 8, width: int = 16) -> None:
            super().__init__()
            ring = torch.eye(nodes).roll(1, 0)
            self.register_buffer("adjacency", (ring + ring.T) / 2)
            self.own, self.message = nn.Linear(1, width), nn.Linear(1, width, bias=False)
            self.out = nn.Linear(width, 1)

        def forward(self, t: Tensor, x: Tensor) -> Tensor:
            return self.out(torch.tanh(self.own(x) + self.message(self.adjacency @ x)))

    block = NeuralODE(Graph(), **SOLVER)
    adjacency = block.field.adjacency
    heat = torch.linalg.matrix_exp(2.0 * (adjacency - torch.eye(len(adjacency))))

    def loss() -> Tensor:
        """Heat conduction along the ring."""
        x = torch.randn(32, len(heat), 1)
        return mse_loss(block(x), heat @ x)

    return Family([block], [loss], loss)


@family
def augmented_ode() -> Family:
    """Zeros beside the state let paths cross: two circles cannot be told apart in the plane."""

    class Augment(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, x.new_zeros(len(x), 2)], 1)

    block = NeuralODE(Autonomous(_mlp(4, 32, 4)), **SOLVER)
    return _supervised(nn.Sequential(Augment(), block, nn.Linear(4, 2)))


@family
def batch_norm_field() -> Family:
    """Batch statistics inside the field, measured in training mode.

    Running statistics average over all times of the path, so evaluation mode differs from training.
    """
    net = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 4))
    block = NeuralODE(Autonomous(net), method="rk4", options={"step_size": 0.25})
    found = _supervised(nn.Sequential(nn.Linear(2, 4), block, nn.Linear(4, 2)))

    def measure() -> Tensor:
        found.models[0].train()
        return found.losses[0]()

    return replace(found, measure=measure)


@family
def dropout_field() -> Family:
    """Every evaluation draws a new mask; the step is fixed."""
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4))
    block = NeuralODE(Autonomous(net), method="rk4", options={"step_size": 0.25})
    return _supervised(nn.Sequential(nn.Linear(2, 4), block, nn.Linear(4, 2)))


@family
def gan_pair() -> Family:
    """A generator with a Neural ODE and a discriminator, each with its own optimizer.

    The penalty on the discriminator's gradient (R1) is a derivative inside the loss.
    """
    generator = nn.Sequential(NeuralODE(Autonomous(_mlp(2, 32, 2)), **SOLVER), nn.Linear(2, 2))
    discriminator = _mlp(2, 32, 1)
    softplus = nn.functional.softplus

    def data() -> Tensor:
        return torch.tensor([2.0, -1.0]) + 0.5 * torch.randn(128, 2)

    def real_or_made() -> Tensor:
        made, real = generator(torch.randn(128, 2)).detach(), data().requires_grad_()
        score = discriminator(real)
        (slope,) = torch.autograd.grad(score.sum(), real, create_graph=True)
        penalty = 2.0 * slope.square().sum(1).mean()
        return (softplus(-score) + softplus(discriminator(made))).mean() + penalty

    def fooled() -> Tensor:
        return softplus(-discriminator(generator(torch.randn(128, 2)))).mean()

    def energy_distance() -> Tensor:
        x, y = data(), generator(torch.randn(128, 2))
        return 2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean()

    return Family([discriminator, generator], [real_or_made, fooled], energy_distance)
