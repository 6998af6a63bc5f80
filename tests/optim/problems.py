"""Small models that the optimizer's tests train."""

import torch
from torch import nn

import snopt


class Field(nn.Module):
    """tanh between two linear layers."""

    def __init__(self, d=3, width=4):
        super().__init__()
        self.first = nn.Linear(d, width)
        self.last = nn.Linear(width, d)

    def forward(self, t, x):
        return self.last(torch.tanh(self.first(x)))


def euler_model(steps=4, dtype=torch.float64, seed=0):
    """A block of a few Euler steps and a read-out: everything can be written out by hand."""
    torch.manual_seed(seed)
    block = snopt.NeuralODE(Field(), 1.0, method="euler", options={"step_size": 1.0 / steps})
    return nn.Sequential(block, nn.Linear(3, 2)).to(dtype)


class Mixed(nn.Module):
    """Layers of every fate: covered inside and outside, norms, a recurrent cell, a free one."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.LayerNorm(3)
        self.block = snopt.NeuralODE(Field(), 1.0, method="rk4", options={"step_size": 0.5})
        self.cell = nn.GRUCell(3, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        x = self.norm(torch.relu(self.conv(x)).mean((2, 3)))
        x = self.cell(x, self.block(x)) * self.scale
        return self.head(x)


def mixed_model(seed=0):
    torch.manual_seed(seed)
    return Mixed()


def image_batch(n=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 5, 5, generator=generator)
    return x, (x.mean((1, 2, 3)) > 0).long()


def iterate(model, optimizer, x=None):
    """One iteration on the mean square of the outputs."""
    optimizer.zero_grad()
    if x is None:
        x = torch.randn(4, 3, dtype=next(model.parameters()).dtype)
    model(x).square().mean().backward()
    optimizer.step()


def cloned(model):
    return [p.detach().clone() for p in model.parameters()]


def unchanged(model, before):
    return all(map(torch.equal, model.parameters(), before))


def trained_by(optimizer):
    return {row.name: row.trained_by for row in optimizer.summary().rows}


def train(model, optimizer, steps, batches=image_batch):
    """Run the usual loop; return the losses."""
    losses = []
    for i in range(steps):
        x, y = batches(seed=i)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def same_parameters(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
