"""A script for torchdiffeq and Adam, moved to snopt: the import and two lines have changed.

It learns the field of a spiral from short pieces of one path. The comment above each changed
line is the original line; restore it to run the script with torchdiffeq.
"""

import torch
from torch import nn

# was: from torchdiffeq import odeint
from snopt import NeuralODE, SNOpt, odeint


class Spiral(nn.Module):
    """The true field: a rotation with friction, acting on the cubes of the coordinates."""

    def forward(self, t, x):
        return x**3 @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


class Learned(nn.Module):
    """A small network that sees the cubes as well."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def forward(self, t, x):
        return self.net(x**3)


def main(iterations=200, length=10, batch=64):
    torch.manual_seed(0)
    start, times = torch.tensor([[2.0, 0.0]]), torch.linspace(0.0, 25.0, 1000)
    with torch.no_grad():
        truth = odeint(Spiral(), start, times, rtol=1e-5, atol=1e-5)

    field = Learned()
    # was: solve = lambda x, t: odeint(field, x, t, rtol=1e-4, atol=1e-4)
    solve = NeuralODE(field, rtol=1e-4, atol=1e-4)
    # was: optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    optimizer = SNOpt(solve)
    losses = []
    for iteration in range(1, iterations + 1):
        first = torch.randint(len(times) - length, (batch,))
        pieces = torch.stack([truth[first + i, 0] for i in range(length)])
        optimizer.zero_grad()
        loss = (solve(pieces[0], times[:length]) - pieces).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if iteration % 25 == 0:
            print(f"iteration {iteration:4d}  mean absolute error {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
