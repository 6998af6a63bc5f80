"""Classify irregular series with a Neural CDE, dz = f(z) dX; X is a spline of torchcde.

In a NeuralODE (the field gets dX/dt from its context) SNOpt integrates the curvature of f's layers
along the path. Through cdeint it sees ordinary layers and records every differentiated evaluation
(adjoint=True: of the backward solve) alike. Here Adam with lr=1e-2 reaches a lower loss.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

import snopt

try:
    import torchcde
except ImportError:
    print("torchcde is not installed: pip install torchcde")
    raise SystemExit from None
HOW = {"rtol": 1e-3, "atol": 1e-4}


class Controlled(nn.Module):
    """f(z), a matrix (hidden, channels); given coefficients of X, the slope f(z) dX/dt."""

    def __init__(self, shape=(8, 3), width=32):
        super().__init__()
        self.shape = shape
        self.first, self.second = nn.Linear(shape[0], width), nn.Linear(width, shape[0] * shape[1])

    def forward(self, t, z, coefficients=None):
        f = torch.tanh(self.second(torch.relu(self.first(z)))).unflatten(-1, self.shape)
        if coefficients is None:  # cdeint multiplies by dX/dt itself
            return f
        return (f @ torchcde.CubicSpline(coefficients).derivative(t)[..., None])[..., 0]


class NeuralCDE(nn.Module):
    def __init__(self, solver):
        super().__init__()
        self.start, self.field, self.read = nn.Linear(3, 8), Controlled(), nn.Linear(8, 2)
        self.block = snopt.NeuralODE(self.field, **HOW) if solver == "NeuralODE" else None

    def forward(self, coefficients):
        X = torchcde.CubicSpline(coefficients)
        z = self.start(X.evaluate(X.interval[0]))
        if self.block is not None:
            return self.read(self.block(z, X.interval, context=coefficients)[-1])
        return self.read(torchcde.cdeint(X, self.field, z, X.interval, adjoint=False, **HOW)[:, -1])


def spirals(count, length=30):
    """Noisy spirals at random times, turning left or right; time is a channel of its own."""
    t, label = torch.rand(count, length).sort(1).values, torch.arange(count) % 2
    time, turn = t[..., None], (2 * label - 1)[:, None] * (4.5 + 4.5 * torch.rand(count, 1))
    angle = 6.3 * torch.rand(count, 1) + turn * t
    x = torch.stack([angle.cos(), angle.sin()], -1) / (1 + 4 * time)
    x = torch.cat([time, x + 0.05 * torch.randn_like(x)], -1)
    return torchcde.hermite_cubic_coefficients_with_backward_differences(x), label


def main(solver="NeuralODE", name="SNOpt", iterations=40):
    torch.manual_seed(0)
    (x, label), (test, truth), model = spirals(128), spirals(128), NeuralCDE(solver)
    optimizer = snopt.SNOpt(model) if name == "SNOpt" else Adam(model.parameters(), lr=1e-2)
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
    right = (model.eval()(test).argmax(1) == truth).float().mean().item()
    print(f"{solver:9s} {name:5s}  loss {loss:.4f}  test accuracy {right:.1%}")
    return optimizer, loss.item(), right


if __name__ == "__main__":
    main()
    main(solver="cdeint")
    main(name="Adam")
