"""A script for torchdiffeq with a tuple as its state: the import alone has changed.

A continuous normalizing flow, written by hand, learns the density of two concentric circles. The
weights of its field are computed from time by a network. (cnf.py uses snopt.models instead.)
"""

import math

import torch
from torch import nn

# was: from torchdiffeq import odeint_adjoint as odeint
from snopt import odeint_adjoint as odeint

WIDTH, HIDDEN, DIMENSION, T0, T1 = 64, 32, 2, 0.0, 10.0


class HyperField(nn.Module):
    """dz/dt = mean over units of U tanh(W z + b), with U, W, b gated functions of time."""

    def __init__(self):
        super().__init__()
        block = WIDTH * DIMENSION
        self.net = nn.Sequential(
            nn.Linear(1, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
            nn.Linear(HIDDEN, 3 * block + WIDTH),
        )  # fmt: skip
        self.block = block

    def forward(self, t, state):
        z, _ = state
        flat = self.net(t.reshape(1, 1)).reshape(-1)
        W, U, gate = (flat[i * self.block : (i + 1) * self.block] for i in range(3))
        W = W.reshape(WIDTH, DIMENSION)
        U = (U * torch.sigmoid(gate)).reshape(WIDTH, DIMENSION)
        h = torch.tanh(z @ W.T + flat[3 * self.block :])
        # The trace of the Jacobian of one hidden layer in closed form.
        trace = ((1 - h**2) * (U * W).sum(1)).mean(1)
        return h @ U / WIDTH, -trace


def circles(count):
    angle = 2 * math.pi * torch.rand(count)
    radius = torch.where(torch.rand(count) < 0.5, 1.0, 0.5) + 0.05 * torch.randn(count)
    return 1.2 * torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def main(iterations=100, batch=512):
    torch.manual_seed(0)
    field = HyperField()
    optimizer = torch.optim.Adam(field.parameters(), lr=3e-3)
    base = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    losses = []
    for iteration in range(1, iterations + 1):
        optimizer.zero_grad()
        state = (circles(batch), torch.zeros(batch))
        z, change = odeint(field, state, torch.tensor([T1, T0]), atol=1e-5, rtol=1e-5)
        loss = -(base.log_prob(z[-1]) - change[-1]).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if iteration % 10 == 0:
            print(f"iteration {iteration:4d}  negative log-likelihood {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
