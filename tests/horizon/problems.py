"""Fields, costs and one problem with a known best horizon, for the tests of this folder."""

import torch
from torch import nn

import snopt
from snopt.horizon import HorizonOptimizer

DTYPE = torch.float64


class Growth(nn.Module):
    """dx/dt = u x: scalar and autonomous."""

    def __init__(self):
        super().__init__()
        self.u = nn.Parameter(torch.tensor([0.7], dtype=DTYPE))

    def forward(self, t, x):
        return self.u * x


class Forced(nn.Module):
    """dx/dt = -a x + b cos(3t): scalar, and it sees the time."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.8], dtype=DTYPE))
        self.b = nn.Parameter(torch.tensor([1.3], dtype=DTYPE))

    def forward(self, t, x):
        return -self.a * x + self.b * torch.cos(3 * t)


class Drift(nn.Module):
    """dx/dt = k, the parameter: x(T) = x0 + k (T - t0)."""

    def __init__(self, k=1.0):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(k, dtype=DTYPE))

    def forward(self, t, x):
        return self.k.expand_as(x)


class Target:
    """dx/dt = k from 0, cost (x(T) - 1)²/2 + c T²/2, which is least at T = k / (c + k²).

    The slope at T is k (k T - 1) + c T, the true curvature k² + c.
    """

    def __init__(self, k=1.0, c=0.25, start=0.5, n=1, dtype=DTYPE, **kwargs):
        self.best = k / (c + k * k)
        # One Euler step is exact for a constant field.
        self.block = snopt.NeuralODE(Drift(k), start, method="euler").to(dtype)
        self.block.field.k.requires_grad_(False)
        self.x0 = torch.zeros(n, 1, dtype=dtype, requires_grad=True)
        kwargs = {"penalty": c, "every": 1, "lr": 1.0, **kwargs}
        self.optimizer = HorizonOptimizer(self.block, **kwargs)

    def loss(self):
        return 0.5 * (self.block(self.x0) - 1.0).square().mean()

    def run(self, iterations):
        """The horizons after each update."""
        for _ in range(iterations):
            self.loss().backward()
            self.optimizer.step()
        return [record.horizon for record in self.optimizer.history]

    def updates_until(self, tolerance, most):
        """How many updates it takes to stay within a distance of the best horizon."""
        path = self.run(most)
        outside = [i for i, T in enumerate(path) if abs(T - self.best) > tolerance]
        return outside[-1] + 2 if outside else 1


def cost_of(field, t0, terminal, running=None, penalty=None, steps=30):
    """The cost as a function of T, x0 and the parameters, by Runge-Kutta steps on one tape."""
    names = [name for name, _ in field.named_parameters()]

    def cost(T, x0, *params):
        named = dict(zip(names, params, strict=True))

        def slope(t, state):
            dx = torch.func.functional_call(field, named, (t, state[0]))
            ell = running(t, state[0], params) if running else torch.zeros((), dtype=DTYPE)
            return dx, ell

        h, state = (T - t0) / steps, (x0, torch.zeros((), dtype=DTYPE))
        for i in range(steps):
            t = t0 + i * h
            k1 = slope(t, state)
            k2 = slope(t + h / 2, [s + h / 2 * k for s, k in zip(state, k1, strict=True)])
            k3 = slope(t + h / 2, [s + h / 2 * k for s, k in zip(state, k2, strict=True)])
            k4 = slope(t + h, [s + h * k for s, k in zip(state, k3, strict=True)])
            state = [
                s + h / 6 * (a + 2 * b + 2 * c + d)
                for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
            ]
        total = terminal(state[0]) + state[1]
        return total if penalty is None else total + penalty(T)

    return cost
