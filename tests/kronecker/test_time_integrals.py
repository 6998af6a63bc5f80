"""A and B of layers inside a solve: closed forms, exact cases, and what they do not depend on."""

import numpy as np
import pytest
import torch
from torch import nn

import snopt
from snopt.adjoint.quadrature import PerStep, UniformGrid
from snopt.kronecker import KroneckerOptions
from tests.kronecker.recorded import collected, factors_after, recorder_of


class Linear(nn.Module):
    """dx/dt = W x."""

    def __init__(self, W):
        super().__init__()
        self.layer = nn.Linear(W.shape[1], W.shape[0], bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.layer.weight.copy_(W)

    def forward(self, t, x):
        return self.layer(x)


class Tanh(nn.Module):
    """A small nonlinear field that depends on time."""

    def __init__(self, d=3, width=7):
        super().__init__()
        self.first = nn.Linear(d + 1, width, dtype=torch.float64)
        self.last = nn.Linear(width, d, dtype=torch.float64)
        self.calls = 0

    def forward(self, t, x):
        self.calls += 1
        t = t.expand(x.shape[0], 1)
        return self.last(torch.tanh(2 * self.first(torch.cat([x, t], 1)))) * 2


def same(a, b, rtol=1e-6):
    assert a.keys() == b.keys()
    for name in a:
        for one, other in ((a[name].A, b[name].A), (a[name].B, b[name].B)):
            atol = rtol * float(one.abs().max())
            torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def test_matrix_linear_field_by_matrix_exponentials():
    W = torch.tensor([[0.1, 1.0, 0.0], [-1.0, -0.2, 0.3], [0.0, 0.5, 0.4]], dtype=torch.float64)
    T, N = 0.9, 5
    block = snopt.NeuralODE(Linear(W), T, rtol=1e-9, atol=1e-9)
    x = torch.randn(N, 3, dtype=torch.float64)
    found = factors_after(block, lambda: block(x).pow(2).sum(1).mean())["field.layer"]
    q = 2 * x @ torch.linalg.matrix_exp(W * T).T  # per example
    nodes, weights = np.polynomial.legendre.leggauss(40)
    A, B = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    for s, w in zip(nodes, weights, strict=True):
        t, w = (s + 1) * T / 2, w * T / 2
        z = x @ torch.linalg.matrix_exp(W * t).T
        g = q @ torch.linalg.matrix_exp(W * (T - t))
        A += w * z.T @ z / N
        B += w * g.T @ g / N / T
    torch.testing.assert_close(found.A, A, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.B, B, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "direct"])
def test_two_nodes_a_step_are_within_one_percent_of_a_fine_reference(adjoint):
    field = Tanh()
    x = torch.randn(16, 3, dtype=torch.float64)

    def factors(tol, quadrature, adjoint):
        block = snopt.NeuralODE(field, 1.0, rtol=tol, atol=tol, adjoint=adjoint)
        options = KroneckerOptions(quadrature=quadrature)
        return factors_after(block, lambda: block(x).pow(2).mean(), options)

    reference = factors(1e-9, UniformGrid(2000), "checkpoint")
    found = factors(1e-3, PerStep(2), adjoint)
    for name in reference:
        for got, want in ((found[name].A, reference[name].A), (found[name].B, reference[name].B)):
            assert (got - want).norm() < 0.01 * want.norm()


@pytest.mark.parametrize("horizon", [0.1, 1.0, 4.0])
def test_recording_costs_three_evaluations_a_step(horizon):
    field = Tanh()
    block = snopt.NeuralODE(field, horizon, rtol=1e-3, atol=1e-3)
    x = torch.randn(16, 3, dtype=torch.float64)

    def evaluations(armed):
        recorder = recorder_of(block)
        if armed:
            recorder.arm()
        before = field.calls
        block(x).pow(2).mean().backward()
        recorder.disarm()
        return field.calls - before

    evaluations(False)  # the first call chooses a step; later ones carry it over
    evaluations(False)
    plain, recorded = evaluations(False), evaluations(True)
    # A step: two nodes, and the slope of the adjoint where it begins.
    assert recorded - plain <= 3 * block.stats.accepted


def test_recording_changes_no_gradient_by_a_single_bit():
    class Noisy(Tanh):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3, dtype=torch.float64)
            self.drop = nn.Dropout(0.1)

        def forward(self, t, x):
            return super().forward(t, self.drop(self.norm(x)))

    def gradients(armed):
        torch.manual_seed(3)
        field = Noisy()
        block = snopt.NeuralODE(field, 1.0, method="rk4", options={"step_size": 0.25})
        x = torch.randn(8, 3, dtype=torch.float64)
        out = []
        recorder = recorder_of(block)
        for _ in range(2):
            if armed:
                recorder.arm()
            block(x).pow(2).mean().backward()
            out += [p.grad.clone() for p in block.parameters()]
        if armed:
            assert collected(recorder)
        return out + [b.clone() for b in block.buffers()]

    for a, b in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(a, b)


def smooth_case():
    torch.manual_seed(1)
    return Tanh(), torch.randn(12, 3, dtype=torch.float64)


def run(field, x, *, tol=1e-7, scale=None, curvature=None, **kwargs):
    block = snopt.NeuralODE(field, 1.0, rtol=tol, atol=tol, **kwargs)
    reduce = (lambda y: y.mean()) if scale is None else scale
    loss = lambda: reduce(block(x).pow(2).sum(1))  # noqa: E731
    return factors_after(block, loss, curvature)


SOLVERS = {
    "backsolve": ({"adjoint": "backsolve"}, 1e-4),
    "direct": ({"adjoint": "direct"}, 1e-4),
    "reversible": ({"adjoint": "reversible", "tol": 1e-6}, 1e-4),
    "adams": ({"method": "implicit_adams", "options": {"step_size": 0.01}}, 1e-3),
    "scipy": ({"method": "scipy_solver", "options": {"solver": "LSODA"}}, 1e-3),
    "rk4": ({"method": "rk4", "options": {"step_size": 0.01}}, 1e-3),
    "adaptive_heun": ({"method": "adaptive_heun", "tol": 1e-5}, 1e-3),
}


@pytest.mark.parametrize(("solver", "rtol"), SOLVERS.values(), ids=SOLVERS)
def test_factors_do_not_depend_on_adjoint_method_or_tolerance(solver, rtol):
    field, x = smooth_case()
    same(run(field, x), run(field, x, **solver), rtol=rtol)


def test_nothing_is_recorded_in_eval_mode_or_without_gradients():
    field, x = smooth_case()
    block = snopt.NeuralODE(field, 1.0)
    recorder = recorder_of(block)
    recorder.arm()
    block.eval()(x).sum().backward()
    with torch.no_grad():
        block.train()(x)
    assert collected(recorder) == {}


def test_tuple_states_and_divergence_code_are_recorded():
    """A continuous normalising flow: the divergence's own derivatives do not count as calls."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Tanh(2)

        def forward(self, t, state):
            x, _ = state
            with torch.enable_grad():
                x = x if x.requires_grad else x.requires_grad_()
                dx = self.field(t, x)
                div = sum(
                    torch.autograd.grad(dx[:, i].sum(), x, create_graph=True)[0][:, i]
                    for i in range(2)
                )
            return dx, -div

    flow = Flow()
    block = snopt.NeuralODE(flow, 1.0, rtol=1e-7, atol=1e-7)
    x = torch.randn(5, 2, dtype=torch.float64)

    def loss():
        y, logp = block((x, torch.zeros(5, dtype=torch.float64)))
        return (y.pow(2).sum(1) / 2 - logp).mean()

    found = factors_after(block, loss)
    assert set(found) == {"field.field.first", "field.field.last"}
    # One call a node: the constant feature's second moment is the duration.
    assert found["field.field.first"].A[-1, -1].item() == pytest.approx(1.0, rel=1e-6)


def test_a_time_gate_fed_one_row_for_the_whole_batch_is_recorded():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(1, 3, dtype=torch.float64)
            self.layer = nn.Linear(3, 3, dtype=torch.float64)

        def forward(self, t, x):
            return torch.tanh(self.layer(x)) * torch.sigmoid(self.gate(t.reshape(1)))

    block = snopt.NeuralODE(Gated(), 1.0, rtol=1e-8, atol=1e-8)
    x = torch.randn(5, 3, dtype=torch.float64)
    found = factors_after(block, lambda: block(x).pow(2).mean())["field.gate"]
    # z = (t, 1): A = ∫ [[t², t], [t, 1]] dt.
    want = torch.tensor([[1 / 3, 1 / 2], [1 / 2, 1]], dtype=torch.float64)
    torch.testing.assert_close(found.A, want, rtol=1e-6, atol=1e-8)


def test_functional_solves_are_recorded_through_an_observer():
    field, x = smooth_case()
    expected = run(field, x, tol=1e-8)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = field

    model = Model()
    recorder = recorder_of(model, fields=[field])
    recorder.arm()
    t = torch.tensor([0.0, 1.0], dtype=torch.float64)
    out = snopt.odeint(field, x, t, rtol=1e-8, atol=1e-8, observer=recorder.observer(field))[-1]
    out.pow(2).sum(1).mean().backward()
    same(expected, collected(recorder), rtol=1e-4)


def test_a_recorder_that_is_gone_leaves_the_model_clean():
    field, _ = smooth_case()
    block = snopt.NeuralODE(field, 1.0)
    recorder = recorder_of(block)
    recorder.arm()
    assert block.observer is not None
    del recorder
    assert block.observer is None
    assert not block._forward_hooks
