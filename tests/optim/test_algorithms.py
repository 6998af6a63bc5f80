"""Twenty steps against Algorithms 1 and 2 written out with explicit Kronecker products.

The transcription shares no code with the package: it unrolls the Euler steps itself, forms A and
B node by node, builds U_A ⊗ U_B as one dense matrix and works on vec(θ), columns stacked, as the
paper does.
"""

import copy

import pytest
import torch
from torch import nn

from snopt.kronecker import KroneckerOptions
from snopt.optim import SNOpt
from tests.optim.problems import euler_model

STEPS, N, H = 20, 16, 0.25
LR, MU, ALPHA, EPS, GAMMA = 0.05, 0.9, 0.75, 0.03, 1e-3


def batch(i):
    generator = torch.Generator().manual_seed(i)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    return x, torch.stack([x.sum(1), x[:, 0] * x[:, 1]], 1)


def vec(W):
    return W.T.reshape(-1)


def unvec(v, shape):
    return v.reshape(shape[1], shape[0]).T


class Dense:
    """Algorithms 1 and 2 for ``euler_model``, on packed matrices [W, b]."""

    def __init__(self, model, rule, refresh_every):
        field, head = model[0].field, model[1]
        self.theta = [
            torch.cat([layer.weight, layer.bias[:, None]], 1).detach().clone()
            for layer in (field.first, field.last, head)
        ]
        self.rule, self.refresh_every, self.k = rule, refresh_every, 0
        self.S = [torch.zeros(W.numel(), dtype=W.dtype) for W in self.theta]
        self.m = [torch.zeros(W.numel(), dtype=W.dtype) for W in self.theta]
        self.U = [None] * 3
        self.fast = list(self.theta)

    def passes(self, x, y):
        """Gradients and, for each layer, its (weight, z, g) at every node."""
        theta = [W.requires_grad_() for W in self.theta]
        one = torch.ones(N, 1, dtype=x.dtype)
        nodes = [[], [], []]

        def linear(n, z, weight):
            z = torch.cat([z, one], 1)
            h = z @ theta[n].T
            h.retain_grad()
            nodes[n].append((weight, z.detach(), h))
            return h

        for _ in range(4):
            x = x + H * linear(1, torch.tanh(linear(0, x, H)), H)
        loss = (linear(2, x, 1.0) - y).pow(2).mean()
        grads = torch.autograd.grad(loss, theta, retain_graph=True)
        outputs = [h for layer in nodes for _, _, h in layer]
        got = iter(torch.autograd.grad(loss, outputs))
        self.theta = [W.detach() for W in theta]
        # An Euler step adds H F, so that the gradient at h is H times (∂F/∂h)ᵀ Q_x.
        return grads, [[(w, z, next(got) / w) for w, z, _ in layer] for layer in nodes]

    def step(self, x, y):
        grads, nodes = self.passes(x, y)
        for n, (W, grad) in enumerate(zip(self.theta, grads, strict=True)):
            if self.k % self.refresh_every == 0:
                # Algorithm 1, lines 5 to 9; the horizon is one, so that 1/(t1 - t0) is too.
                A = sum(w * z.T @ z / N for w, z, _ in nodes[n])
                B = sum(w * g.T @ g * N for w, _, g in nodes[n])
                old = self.U[n]
                values_A, U_A = torch.linalg.eigh(A)
                values_B, U_B = torch.linalg.eigh(B)
                self.U[n] = torch.kron(U_A, U_B)
                self.values = getattr(self, "values", [None] * 3)
                self.values[n] = torch.kron(values_A, values_B)
                if self.rule == "adam" and old is not None:
                    R = old.T @ self.U[n]
                    self.S[n] = (R**2).T @ self.S[n]
            self.theta[n] = W - self.update(n, W, grad)
        self.k += 1

    def update(self, n, W, grad):
        U = self.U[n]
        if self.rule == "adam":
            # z takes the steps, x is its mean, and the parameters are between the two.
            k, z, x = self.k + 1, self.fast[n], (W - (1 - MU) * self.fast[n]) / MU
            X, beta = U.T @ vec(grad), min(0.99, 1 - k**-0.8)
            self.S[n] = beta * self.S[n] + (1 - beta) * X**2
            X = X / (self.S[n].sqrt() + 1e-8)
            X = X / max(1.0, float(X.square().mean().sqrt()))
            # Within the warm-up of 20 steps each counts with k² times the square of its rate.
            d = unvec(U @ X, W.shape)
            decays = d * W > 0  # weights that the step moves towards zero
            decays[:, -1] = False  # biases
            self.fast[n] = z - LR * k / 20 * (d + GAMMA * d.abs() * W * decays)
            x = x + (self.fast[n] - x) * k**4 / sum(j**4 for j in range(k + 1))
            return W - (1 - MU) * self.fast[n] - MU * x
        X = U.T @ vec(grad + GAMMA * W)
        if self.rule == "amortized":
            self.S[n] = ALPHA * self.S[n] + (1 - ALPHA) * N * X**2
            X = X / (self.S[n] + GAMMA + EPS)
        else:
            X = X / (self.values[n] + GAMMA + EPS)
        self.m[n] = MU * self.m[n] + U @ X
        return LR * unvec(self.m[n], W.shape)


@pytest.mark.parametrize("rule", ["amortized", "kronecker", "adam"])
def test_twenty_steps_equal_the_dense_transcription(rule):
    model = euler_model()
    dense = Dense(model, rule, refresh_every=5)
    damping = 1e-8 if rule == "adam" else EPS
    decay = 0.99 if rule == "adam" else ALPHA
    optimizer = SNOpt(
        model, lr=LR, rule=rule, momentum=MU, decay=decay, damping=damping, weight_decay=GAMMA,
        refresh_every=5, curvature=KroneckerOptions(averaging=0.0),
    )  # fmt: skip
    first = copy.deepcopy(dense.theta)
    for i in range(STEPS):
        x, y = batch(i)
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        dense.step(x, y)
        layers = (model[0].field.first, model[0].field.last, model[1])
        for layer, W in zip(layers, dense.theta, strict=True):
            torch.testing.assert_close(layer.weight.detach(), W[:, :-1], rtol=1e-5, atol=1e-8)
            torch.testing.assert_close(layer.bias.detach(), W[:, -1], rtol=1e-5, atol=1e-8)
    assert any((a - b).abs().max() > 1e-2 for a, b in zip(first, dense.theta, strict=True))


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
