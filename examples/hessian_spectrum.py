"""Draw the spectra of a small model's Hessian and Gauss-Newton matrix: out/spectrum.png."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

import snopt


class Field(nn.Module):
    """dx/dt = F(t, x): one hidden layer that also sees the time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.net(torch.cat([x, t.expand(len(x), 1)], dim=1))


def rings(n: int) -> tuple[Tensor, Tensor]:
    """Points on two rings, and which ring each is on."""
    label = torch.arange(n) % 2
    radius = 0.5 + label + 0.1 * torch.randn(n)
    angle = 2 * torch.pi * torch.rand(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), label


def draw(panel: Axes, title: str, Q_uu: dict[str, Tensor]) -> None:
    """Eigenvalues in falling order, negative ones apart."""
    for (name, matrix), colour in zip(Q_uu.items(), ["tab:blue", "tab:orange"], strict=True):
        values = torch.linalg.eigvalsh(matrix).flip(0)
        rank = torch.arange(1, len(values) + 1)
        panel.semilogy(rank, values.clamp(min=0), ".", color=colour, label=name)
        if name == "Hessian":
            label = "Hessian, negative ones without sign"
            panel.semilogy(rank, (-values).clamp(min=0), "x", color=colour, ms=4, label=label)
    panel.set(title=title, xlabel="number of the eigenvalue", ylim=(1e-10, None))
    panel.grid(alpha=0.3)


def main(iterations=300, width=24, picture=Path("out/spectrum.png")):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    field, readout = Field(width), nn.Linear(2, 2)
    model = nn.Sequential(snopt.NeuralODE(field, rtol=1e-4, atol=1e-4), readout)
    x, label = rings(48)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)

    def cost(x1: Tensor) -> Tensor:
        return nn.functional.cross_entropy(readout(x1), label)

    losses = []
    figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for panel, when, count in zip(panels, ("before", "after"), (0, iterations), strict=True):
        for _ in range(count):
            optimizer.zero_grad()
            cost(model[0](x)).backward()
            optimizer.step()
        Q_uu = {}
        for name, exact in {"Hessian": True, "Gauss-Newton (Theorem 1)": False}.items():
            how = {"exact": exact, "adjoint": "checkpoint"}
            found = snopt.differential_programming(field, x, (0.0, 1.0), cost, **how)
            Q_uu[name] = found.Q_uu
        losses.append(found.Q.item())
        print(f"{when} training: loss {found.Q:.4f}")
        draw(panel, f"{when} training, loss {found.Q:.3g}", Q_uu)
    panels[0].set_ylabel("eigenvalue of Q_uu")
    panels[1].legend()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)
    return losses


if __name__ == "__main__":
    main()
