"""Learn the field of a cubic spiral from short pieces of one trajectory.

A script for torchdiffeq in which one line has changed: the import.

    python examples/spiral.py [--iterations 300]
"""

import argparse

import torch
from torch import nn

from snopt import odeint_adjoint as odeint  # was: from torchdiffeq import odeint_adjoint as odeint

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=300)
arguments = parser.parse_args()
torch.manual_seed(0)


class Spiral(nn.Module):
    """The true field: a rotation with friction, acting on the cubes of the coordinates."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]), requires_grad=False)

    def forward(self, t, y):
        return (y**3) @ self.matrix


class Learned(nn.Module):
    """A small network that sees the cubes as well."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for layer in (self.net[0], self.net[2]):
            nn.init.normal_(layer.weight, std=0.1)
            nn.init.zeros_(layer.bias)

    def forward(self, t, y):
        return self.net(y**3)


start = torch.tensor([[2.0, 0.0]])
times = torch.linspace(0.0, 25.0, 1000)
with torch.no_grad():
    truth = odeint(Spiral(), start, times, method="dopri5")

LENGTH, BATCH = 10, 20
field = Learned()
optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
loss = torch.tensor(float("nan"))
for iteration in range(1, arguments.iterations + 1):
    first = torch.randint(len(times) - LENGTH, (BATCH,))
    pieces = torch.stack([truth[first + i] for i in range(LENGTH)])
    optimizer.zero_grad()
    predicted = odeint(field, truth[first], times[:LENGTH])
    loss = (predicted - pieces).abs().mean()
    loss.backward()
    optimizer.step()
    if iteration % 50 == 0:
        print(f"iteration {iteration:4d}  mean absolute error {loss.item():.5f}")
print(f"final loss {loss.item():.6f}")
