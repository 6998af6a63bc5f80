"""Train a small NeuralODE to part two moons, and draw the flow that it learned."""

from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LinearSegmentedColormap
from torch import Tensor, nn

import snopt

ITERATIONS = 200
PICTURE = Path("out/demo.png")


def two_moons(n: int, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Two interleaved half circles, centred on the origin, and which of them each point is on."""
    label = torch.arange(n) % 2
    angle = torch.pi * torch.rand(n) + torch.pi * label
    x = torch.stack([angle.cos() + label - 0.5, angle.sin() + 0.5 * label - 0.25], dim=1)
    return x + noise * torch.randn_like(x), label


class Field(nn.Module):
    """dx/dt = F(t, x): a network of one hidden layer that also sees the time."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.net(torch.cat([x, t.expand(len(x), 1)], dim=1))


def draw(block: snopt.NeuralODE, readout: nn.Module, x: Tensor, label: Tensor) -> None:
    """The decision on the plane of inputs, and the way each point takes."""
    colours = ["tab:blue", "tab:orange"]
    plane = torch.cartesian_prod(*[torch.linspace(-2.2, 2.2, 100)] * 2)
    with torch.no_grad():
        chance = readout(block(plane)).softmax(dim=1)[:, 1].reshape(100, 100).T
        paths = block(x, torch.linspace(0.0, 1.0, 30))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    shades = LinearSegmentedColormap.from_list("chance", [colours[0], "white", colours[1]])
    left.imshow(chance, origin="lower", extent=(-2.2, 2.2, -2.2, 2.2), cmap=shades, alpha=0.5)
    for k, colour in enumerate(colours):
        left.scatter(*x[label == k].T, s=8, color=colour)
        right.plot(*paths[:, label == k].permute(2, 0, 1), color=colour, alpha=0.25, lw=0.7)
        right.scatter(*paths[-1, label == k].T, s=8, color=colour)
    left.set(title="inputs x(0) and the decision", aspect="equal")
    right.set(title="paths x(t) from 0 to the horizon (dots)")
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # tensors this small are faster on one core than shared by two
    block = snopt.NeuralODE(Field(), horizon=1.0, rtol=1e-3, atol=1e-3)
    model = nn.Sequential(block, nn.Linear(2, 2))
    optimizer, start = torch.optim.Adam(model.parameters(), lr=0.02), perf_counter()
    for i in range(1, ITERATIONS + 1):
        x, label = two_moons(256)
        optimizer.zero_grad()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, label)
        loss.backward()
        optimizer.step()
        if i == 1 or i % 20 == 0:
            right = (logits.argmax(dim=1) == label).float().mean()
            nfe = f"nfe {block.stats.nfe_forward:3d} forward {block.stats.nfe_backward:3d} backward"
            score = f"loss {loss:.4f}  accuracy {right:6.1%}"
            print(f"{i:4d}  {score}  {nfe}  {perf_counter() - start:5.1f} s")
    draw(block, model[1], *two_moons(400))
    print(f"picture: {PICTURE.resolve()}")


if __name__ == "__main__":
    main()
