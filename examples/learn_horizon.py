"""Learn how long a Neural ODE should integrate, together with what it integrates.

The usual loop plus one line, `horizon.step()`. The same model is trained with the horizon
fixed to 1 for comparison.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from snopt import HorizonOptimizer, NeuralODE


class Field(nn.Module):
    """dx/dt: two linear layers that see the time."""

    def __init__(self, width=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width + 1, 32), nn.Tanh(), nn.Linear(32, width))

    def forward(self, t, x):
        return self.net(torch.cat([x, t.expand(len(x), 1)], dim=1))


def two_rings(n):
    """Points of two circles around each other, in four dimensions."""
    y = torch.randint(2, (n,))
    angle = 2 * torch.pi * torch.rand(n)
    radius = 1.0 + y + 0.1 * torch.randn(n)
    plane = radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return torch.cat([plane, torch.zeros(n, 2)], dim=1), y


def train(learn, iterations):
    torch.manual_seed(0)
    block = NeuralODE(Field(), horizon=1.0)
    model = nn.Sequential(block, nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # or any other, snopt.SNOpt too
    horizon = HorizonOptimizer(block, every=20) if learn else None
    for _ in range(iterations):
        x, y = two_rings(128)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        if horizon is not None:
            horizon.step()
    evaluations = block.totals.nfe_forward / iterations
    x, y = two_rings(2000)
    with torch.no_grad():
        right = (model.eval()(x).argmax(1) == y).float().mean().item()
    print(f"{'learned' if learn else 'fixed':7}  T = {block.horizon:.3f}  accuracy {right:.1%}  "
          f"evaluations a solve: {evaluations:.1f} on average, "
          f"{block.stats.nfe_forward} at the end")  # fmt: skip
    if horizon is not None:
        print("T over training:", *(f"{record.horizon:.2f}" for record in horizon.history[::5]))
    return block.horizon, right


def main(iterations=400):
    return train(learn=False, iterations=iterations), train(learn=True, iterations=iterations)


if __name__ == "__main__":
    main()
