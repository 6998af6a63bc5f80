"""Callbacks of the field: called when, with what, compared with torchdiffeq itself."""

import pytest
import torch
import torchdiffeq
from torch import nn

import snopt

BOTH = [torchdiffeq, snopt]
STEP, ACCEPT, REJECT = "callback_step", "callback_accept_step", "callback_reject_step"


class Told(nn.Module):
    """A field that writes down what it is told."""

    def __init__(self, tuples=False, names=(STEP, ACCEPT, REJECT), suffix=""):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(-1.0, dtype=torch.float64))
        self.tuples, self.told = tuples, []
        for name in names:
            setattr(self, name + suffix, lambda *args, name=name: self.told.append((name, *args)))

    def forward(self, t, x):
        if self.tuples:
            return self.a * x[0], torch.cos(40 * t) * torch.ones_like(x[1])
        return self.a * x * (1 + torch.cos(40 * t))

    def of(self, name):
        return [call[1:] for call in self.told if call[0] == name]


X0 = torch.tensor([1.0, 2.0], dtype=torch.float64)
TUPLE = (X0, torch.zeros(1, dtype=torch.float64))
T = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)


def run(lib, field, t, adjoint=False, **kwargs):
    x0 = TUPLE if field.tuples else X0
    solve = lib.odeint_adjoint if adjoint else lib.odeint
    return solve(field, x0, t, rtol=1e-5, atol=1e-5, **kwargs)


def check_adaptive(field, t0, t1):
    """What holds for the calls of any adaptive solve, whatever its steps."""
    steps, accepted, rejected = (field.of(name) for name in (STEP, ACCEPT, REJECT))
    assert len(steps) == len(accepted) + len(rejected)
    assert rejected
    assert [call[0] for call in field.told[:2]] in ([STEP, ACCEPT], [STEP, REJECT])
    sign = 1.0 if t1 > t0 else -1.0
    time = t0
    for t, _, dt in accepted:
        assert t.shape == dt.shape == ()
        assert t.item() == pytest.approx(time, abs=1e-9)
        assert dt > 0
        time = t.item() + sign * dt.item()
    assert (time - t1) * sign > -1e-9  # torchdiffeq steps over the end, we land on it
    return steps


@pytest.mark.parametrize("lib", BOTH)
@pytest.mark.parametrize("method", ["dopri5", "adaptive_heun"])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("tuples", [False, True])
def test_adaptive_methods_tell_every_step(lib, method, flip, tuples):
    t, field = T.flip(0) if flip else T, Told(tuples)
    run(lib, field, t, method=method, options={"first_step": 0.3})
    time, x, dt = check_adaptive(field, t[0].item(), t[-1].item())[0]
    assert (time.item(), dt.item()) == (t[0].item(), 0.3)
    assert time.dtype == dt.dtype == torch.float64
    if tuples:
        assert all(torch.equal(a, b) for a, b in zip(x, TUPLE, strict=True))
    else:
        assert torch.equal(x, X0)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("method", ["rk4", "heun3"])
def test_fixed_steps_are_told_alike(flip, method):
    t, calls = T.flip(0) if flip else T, []
    for lib in BOTH:
        field = Told(names=[STEP])
        run(lib, field, t, method=method, options={"step_size": 0.15})
        calls.append(field.of(STEP))
    assert len(calls[0]) == 7
    for ours, theirs in zip(calls[1], calls[0], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lib", BOTH)
def test_a_fixed_step_method_says_that_it_rejects_nothing(lib):
    field = Told()
    with pytest.warns(UserWarning, match=ACCEPT):
        run(lib, field, T, method="rk4")
    assert {call[0] for call in field.told} == {STEP}


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct", "backsolve", "reversible"])
def test_every_adjoint_tells_the_steps_of_its_solve(adjoint):
    field, stats = Told(), snopt.SolveStats()
    x = snopt.odeint(field, X0, T, rtol=1e-4, atol=1e-4, adjoint=adjoint, stats=stats)
    forward = len(field.told)
    x[-1].sum().backward()
    assert len(field.told) == forward  # none of the backward pass
    assert len(field.of(ACCEPT)) == stats.accepted
    assert len(field.of(REJECT)) == stats.rejected
    assert len(field.of(STEP)) == stats.accepted + stats.rejected


@pytest.mark.usefixtures("traced")
def test_the_block_tells_too_also_compiled():
    counts = []
    for compile in (False, True):
        field = Told()
        block = snopt.NeuralODE(field, 1.0, rtol=1e-5, atol=1e-5, compile=compile)
        for _ in range(2):
            field.told.clear()
            block(X0).sum().backward()
            assert len(field.of(STEP)) == block.stats.accepted + block.stats.rejected
            assert len(field.of(ACCEPT)) == block.stats.accepted
        counts.append(len(field.told))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("lib", BOTH)
@pytest.mark.parametrize("method", ["dopri5", "adaptive_heun"])
def test_the_adjoint_solve_tells_its_steps(lib, method):
    field = Told(suffix="_adjoint")
    x = run(lib, field, torch.tensor([0.0, 1.0], dtype=torch.float64), adjoint=True, method=method,
            adjoint_options={"first_step": 0.3})  # fmt: skip
    assert not field.told
    x[-1].sum().backward()
    t, state, dt = check_adaptive(field, 1.0, 0.0)[0]
    assert (t.item(), dt.item()) == (1.0, 0.3)
    torch.testing.assert_close(state[1], x[-1].detach())
    torch.testing.assert_close(state[2], torch.ones(2, dtype=torch.float64))


def test_the_adjoint_state_has_the_users_structure():
    """In torchdiffeq state and adjoint come flattened, and the parameters follow."""
    field = Told(tuples=True, suffix="_adjoint")
    x = run(snopt, field, T, adjoint=True)
    x[0][-1].sum().backward()
    time, state, adjoint = field.of(STEP)[0][1]
    assert time == 0.0
    assert [part.shape for part in state] == [part.shape for part in TUPLE]
    assert torch.equal(adjoint[0], torch.ones(2, dtype=torch.float64))
    assert torch.equal(adjoint[1], torch.zeros(1, dtype=torch.float64))


def test_fixed_steps_of_the_adjoint_solve_are_told_alike():
    calls = []
    for lib in BOTH:
        field = Told(names=[STEP], suffix="_adjoint")
        x = run(lib, field, T, adjoint=True, method="rk4", options={"step_size": 0.15})
        x[-1].sum().backward()
        calls.append([number for t, _, dt in field.of(STEP) for number in (t.item(), dt.item())])
    assert calls[1] == pytest.approx(calls[0])
