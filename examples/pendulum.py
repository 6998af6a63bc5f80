"""Recover the law of a damped pendulum from noisy readings, and draw it: out/pendulum.png.

The network is told that angles come back after a turn. SNOpt and Adam fit it to pieces of one unit
of time, each from its own noisy first reading; same weights, same pieces.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

from snopt import NeuralODE, SNOpt

TIMES, COUNT, LENGTH = torch.linspace(0.0, 8.0, 65), 32, 9
NEW = torch.tensor([[2.0, 0.0], [-1.0, 1.5], [0.5, -1.0]])  # starts of paths to compare


class Pendulum(nn.Module):
    def forward(self, t, x):
        return torch.stack([x[..., 1], -x[..., 0].sin() - 0.2 * x[..., 1]], dim=-1)


class Learned(nn.Sequential):
    def forward(self, t, x):
        return super().forward(torch.stack([x[..., 0].sin(), x[..., 0].cos(), x[..., 1]], dim=-1))


@torch.enable_grad()
def fit(readings, make_optimizer, iterations):
    torch.manual_seed(1)
    layers = nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2)
    block = NeuralODE(Learned(*layers))
    optimizer, losses = make_optimizer(block), []
    for _ in range(iterations):
        first = torch.randint(len(TIMES) - LENGTH + 1, (COUNT,))
        pieces = torch.stack([readings[first + i, torch.arange(COUNT)] for i in range(LENGTH)])
        optimizer.zero_grad()
        loss = (block(pieces[0], TIMES[:LENGTH]) - pieces).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return block.eval(), losses


def portrait(panel, title, block):
    speed, angle = torch.meshgrid(*[torch.linspace(-2.5, 2.5, 25)] * 2, indexing="ij")
    flow = block.field(torch.tensor(0.0), torch.stack([angle, speed], dim=-1))
    panel.streamplot(*(v.numpy() for v in (angle, speed, *flow.unbind(-1))), color="silver")
    panel.plot(*block(NEW, TIMES).numpy().transpose(2, 0, 1))
    panel.set(title=title, xlabel="angle", ylabel="speed", xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))


@torch.no_grad()
def main(iterations=200, picture=Path("out/pendulum.png")):
    torch.manual_seed(0)
    truth = NeuralODE(Pendulum(), rtol=1e-5, atol=1e-5)
    paths = truth(torch.tensor([torch.pi, 2.0]) * (2 * torch.rand(COUNT, 2) - 1), TIMES)
    readings = paths + 0.05 * torch.randn(paths.shape)
    _, adam = fit(readings, lambda b: torch.optim.Adam(b.parameters(), lr=1e-2), iterations)
    learned, snopt = fit(readings, SNOpt, iterations)
    F, found = (block.field(torch.tensor(0.0), paths) for block in (truth, learned))
    error = float((found - F).norm() / F.norm())
    apart = float((learned(NEW, TIMES) - truth(NEW, TIMES)).abs().max())
    print(f"field {error:.1%} off along the true paths, new paths {apart:.2f} apart at most")

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    portrait(left, "true", truth)
    portrait(middle, "learned by SNOpt", learned)
    right.semilogy(torch.tensor([snopt, adam]).T, label=["SNOpt", "Adam"])
    right.legend(title="mean squared error of a batch")
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
    return error, apart, snopt, adam


if __name__ == "__main__":
    main()
