"""Updates of random layers by every rule, against explicit Kronecker products.

The transcription works on vec(θ), rows one after the other, with dense matrices. It reads factors
and eigenvectors from the optimizer's state, since eigenvectors of equal eigenvalues may be any;
that they diagonalise the factors is checked.
"""

import functools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import snopt
from snopt.kronecker import KroneckerOptions
from snopt.optim import SNOpt
from tests.fuzz.draw import examples

STEPS = 5


class Field(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, t, x):
        return torch.tanh(self.layer(x)) * (1 + t)


@st.composite
def models(draw):
    """A layer inside a solve, one outside."""
    torch.manual_seed(draw(st.integers(0, 99)))
    bias = draw(st.booleans())
    solver = {"method": "rk4", "options": {"step_size": 0.5}}
    if draw(st.booleans()):
        d = draw(st.integers(1, 4))
        inside, shape = nn.Linear(d, d, bias=bias), (d,)
        outside = nn.Linear(d, draw(st.integers(1, 3)), bias=not bias)
    else:
        groups = draw(st.integers(1, 2))
        c = groups * draw(st.integers(1, 2))
        inside, shape = nn.Conv2d(c, c, 3, padding=1, groups=groups, bias=bias), (c, 3, 2)
        outside = nn.Conv2d(c, groups, 2, groups=groups, bias=not bias)
    return nn.Sequential(snopt.NeuralODE(Field(inside), 1.0, **solver), outside).double(), shape


def dense(view, state, name):
    """For each packed tensor a dense matrix over its entries; ``name``: factors or bases."""
    out = []
    for modes in view.target_modes:
        groups = []
        for g in range(view.groups):
            whole = [torch.block_diag(*[block[g] for block in state[name][m]]) for m in modes]
            groups.append(functools.reduce(torch.kron, whole))
        out.append(torch.block_diag(*groups))
    return out


def values(view, state):
    return [
        torch.cat(
            [
                functools.reduce(torch.kron, [state["values"][m][g].clamp_min(0) for m in modes])
                for g in range(view.groups)
            ]
        )
        for modes in view.target_modes
    ]


class Dense:
    """One layer's updates by dense matrices."""

    def __init__(self, view, hyper):
        self.view, self.hyper = view, hyper
        self.k, self.U, self.second, self.velocity, self.fast = 0, None, None, None, None
        # The root of the number of kernel positions; biases do not decay.
        roots = [p[0, 0].numel() ** 0.5 if p.dim() > 1 else 0.0 for p in view.parameters]
        self.scales = self.packed(
            [torch.full_like(*each) for each in zip(view.parameters, roots, strict=True)]
        )

    def packed(self, tensors):
        weight, bias = tensors if self.view.bias else (*tensors, None)
        return [part.flatten() for part in self.view.pack(weight, bias)]

    def __call__(self, thetas, gradients, state):
        """New parameters, packed and flat."""
        theta, g = self.packed(thetas), self.packed(gradients)
        U = dense(self.view, state, "bases")
        zeros = [torch.zeros_like(part) for part in g]
        if self.U is None:
            self.second, self.velocity, self.fast = zeros, list(zeros), list(theta)
        elif self.hyper["rule"] == "adam":
            turns = [old.T @ new for old, new in zip(self.U, U, strict=True)]
            self.second = [R.square().T @ v for R, v in zip(turns, self.second, strict=True)]
        self.U, self.k = U, self.k + 1
        step = getattr(self, self.hyper["rule"])
        return [step(i, theta[i], g[i], state) for i in range(len(g))]

    def adam(self, i, theta, g, state):
        h, X = self.hyper, self.U[i].T @ g
        beta = min(h["decay"], 1 - self.k**-0.8)
        self.second[i] = beta * self.second[i] + (1 - beta) * X**2
        X = X / (self.second[i].sqrt() + h["damping"])
        X = X / max(1.0, float(X.square().mean().sqrt()))
        # θ = (1 - μ) z + μ x, of which x is the weighted mean of the values of z so far.
        mean = (theta - (1 - h["momentum"]) * self.fast[i]) / (h["momentum"] or 1.0)
        lr = h["lr"] * min(1.0, self.k / 20)
        d = self.U[i] @ X
        for j in range(len(d)):  # weights that the step moves towards zero decay
            if d[j] * theta[j] > 0:
                d[j] += h["weight_decay"] * self.scales[i][j] * theta[j]
        self.fast[i] = self.fast[i] - lr * d
        # Within the warm-up the k-th step counts with k² times the square of its rate.
        mean = mean + (self.fast[i] - mean) * self.k**4 / sum(j**4 for j in range(self.k + 1))
        return (1 - h["momentum"]) * self.fast[i] + h["momentum"] * mean

    def amortized(self, i, theta, g, state):
        h = self.hyper
        X = self.U[i].T @ (g + h["weight_decay"] * theta)
        a = h["decay"]
        self.second[i] = a * self.second[i] + (1 - a) * h["N"] * X**2
        return self.heavy_ball(
            i, theta, self.U[i] @ (X / (self.second[i] + h["weight_decay"] + h["damping"]))
        )

    def kronecker(self, i, theta, g, state):
        h = self.hyper
        curvature = dense(self.view, state, "factors")[i]
        shift = (h["weight_decay"] + h["damping"]) * torch.eye(len(curvature), dtype=g.dtype)
        return self.heavy_ball(
            i, theta, torch.linalg.solve(curvature + shift, g + h["weight_decay"] * theta)
        )

    def heavy_ball(self, i, theta, direction):
        self.velocity[i] = self.hyper["momentum"] * self.velocity[i] + direction
        return theta - self.hyper["lr"] * self.velocity[i]


def check_bases(view, state):
    for factor, U, value in zip(
        dense(view, state, "factors"), dense(view, state, "bases"), values(view, state), strict=True
    ):
        scale = float(factor.abs().max()) + 1e-12
        eye = torch.eye(len(U), dtype=U.dtype)
        torch.testing.assert_close(U.T @ U, eye, rtol=0, atol=1e-10)
        torch.testing.assert_close(U * value @ U.T, factor, rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("rule", ["adam", "amortized", "kronecker"])
def test_updates_equal_dense_kronecker_products(rule):
    @given(
        models(),
        st.sampled_from(["kfc", "per_axis"]),
        st.sampled_from([2, 2048]),
        st.sampled_from([0.0, 0.9]),
        st.sampled_from([0.0, 0.01]),
        st.sampled_from([0.0, 0.8]),
        st.integers(1, 3),
        st.integers(1, 7),
    )
    @examples(15)
    def check(model, conv, max_size, momentum, weight_decay, averaging, every, N):
        (model, shape), decay = model, 0.9
        hyper = {
            "rule": rule, "lr": 0.02, "momentum": momentum, "decay": decay,
            "weight_decay": weight_decay, "damping": 0.05, "N": N,
        }  # fmt: skip
        options = KroneckerOptions(conv=conv, max_size=max_size, averaging=averaging)
        settings = {key: value for key, value in hyper.items() if key != "N"}
        optimizer = SNOpt(
            model, **settings, refresh_first=every, refresh_every=every, curvature=options
        )
        slots = optimizer.recorder.slots
        transcribed = {name: Dense(slot.view, hyper) for name, slot in slots.items()}
        for i in range(STEPS):
            x = torch.randn(N, *shape, dtype=torch.float64)
            optimizer.zero_grad()
            model(x).square().flatten(1).sum(1).mean().backward()
            before = {
                name: [p.detach().clone() for p in slot.view.parameters]
                for name, slot in slots.items()
            }
            optimizer.step()
            assert optimizer.batch_size == N
            assert optimizer.counts.refreshes == i // every + 1
            for name, slot in slots.items():
                params = slot.view.parameters
                state = optimizer.state[params[0]]
                check_bases(slot.view, state)
                want = transcribed[name](before[name], [p.grad for p in params], state)
                got = transcribed[name].packed([p.detach() for p in params])
                for a, b in zip(got, want, strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)

    with pytest.warns(RuntimeWarning, match="max_size=2 are split"):
        check()
