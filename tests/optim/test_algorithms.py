"""Details of Algorithms 1 and 2; tests/fuzz/test_updates.py writes out whole updates."""

import copy

import torch
from torch import nn

from snopt.kronecker import KroneckerOptions
from snopt.optim import SNOpt
from tests.optim.problems import euler_model

N = 16


def batch(i):
    generator = torch.Generator().manual_seed(i)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    return x, torch.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)


def test_line_10_of_algorithm_1_is_the_undamped_kronecker_rule():
    """θ ← θ - η B̄⁻¹ Q_u Ā⁻ᵀ, with the factors the optimizer itself reports."""
    model = euler_model()
    optimizer = SNOpt(model, lr=0.1, rule="kronecker", momentum=0.0, damping=0.0)
    x, y = batch(0)
    before = model[1].weight.detach().clone(), model[1].bias.detach().clone()
    (model(x) - y).pow(2).mean().backward()
    gradient = torch.cat([model[1].weight.grad, model[1].bias.grad[:, None]], 1)
    optimizer.step()
    A, B = optimizer.factors["1"].A, optimizer.factors["1"].B
    delta = 0.1 * torch.linalg.inv(B) @ gradient @ torch.linalg.inv(A).T
    torch.testing.assert_close(model[1].weight.detach(), before[0] - delta[:, :-1])
    torch.testing.assert_close(model[1].bias.detach(), before[1] - delta[:, -1])


def test_factors_are_averaged_without_bias():
    model = euler_model()
    optimizer = SNOpt(model, lr=0.0, refresh_every=1, curvature=KroneckerOptions(averaging=0.5))
    seen = []
    for i in range(3):
        x, y = batch(i)
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        other = copy.deepcopy(model)
        single = SNOpt(other, lr=0.0)
        (other(x) - y).pow(2).mean().backward()
        single.step()
        seen.append(single.factors["1"].B)
    weights = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)
    want = sum(w * B for w, B in zip(weights / weights.sum(), seen, strict=True))
    torch.testing.assert_close(optimizer.factors["1"].B, want)


def test_weights_tied_between_layers_share_one_slot():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))

    model = Tied().double()
    optimizer = SNOpt(model, lr=0.01)
    x = torch.randn(5, 3, dtype=torch.float64)
    model(x).pow(2).mean().backward()
    optimizer.step()
    assert list(optimizer.factors) == ["a"]
    # Different biases: they are left to the fallback, and the factor has no constant feature.
    assert optimizer.factors["a"].A.shape == (3, 3)
    by = {row.name: row.trained_by for row in optimizer.summary().rows}
    assert by == {"a": "kronecker", "a.bias": "adam", "b.bias": "adam"}
