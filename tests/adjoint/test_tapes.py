"""Which evaluations the checkpointed adjoint differentiates: those of the accepted steps."""

import pytest
import torch
from torch import nn

import snopt
from snopt.adjoint import tape_budget
from snopt.adjoint.tape_budget import Kept


class Driven(nn.Module):
    """Two tanh layers and a drive that makes the solver reject steps."""

    def __init__(self, frequency=6.0):
        super().__init__()
        self.first = nn.Linear(3, 16, dtype=torch.float64)
        self.second = nn.Linear(16, 3, dtype=torch.float64)
        self.frequency = frequency
        with torch.no_grad():
            self.first.weight.mul_(3.0)

    def forward(self, t, x):
        drive = 3.0 * torch.sin(self.frequency * t)
        return self.second(torch.tanh(self.first(x) + drive)) * 2.0


class Timeless(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, t, x):
        return self.net(x)


def gradient(field, times, **solver):
    stats = snopt.SolveStats()
    x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
    x = snopt.odeint(field, x0, times, stats=stats, **{"rtol": 1e-5, "atol": 1e-5, **solver})
    found = torch.autograd.grad((x[1:] ** 2).sum(), [x0, *field.parameters()])
    return torch.cat([part.reshape(-1) for part in found]), stats


def off(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize(
    "times", [[0.0, 1.0], [0.0, 0.31, 0.32, 0.7, 1.0], [1.0, 0.6, -0.2]], ids=len
)
@pytest.mark.parametrize(
    "options", [{}, {"first_step": 1.0}, {"jump_t": [0.4], "first_step": 1.0}], ids=str
)
@pytest.mark.parametrize("method", ["bosh3", "dopri5", "tsit5", "dopri8"])
def test_a_rejected_attempt_leaves_no_tape_behind(method, options, times):
    field = Driven()
    solver = {"method": method, "options": options}
    expected, stats = gradient(field, times, adjoint="direct", **solver)
    assert stats.rejected > 0
    found, again = gradient(field, times, **solver)
    assert (again.accepted, again.rejected) == (stats.accepted, stats.rejected)
    assert off(found, expected) < 1e-12


def test_solves_that_wait_for_their_backward_pass_share_a_budget(monkeypatch):
    """A series of solves, as of an ODE-RNN, keeps no more tape than the budget of all."""
    torch.manual_seed(0)
    field = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
    block = snopt.NeuralODE(Timeless(field), rtol=1e-6, atol=1e-6)

    def gradients():
        x, most = torch.linspace(-1.0, 1.0, 12).reshape(3, 4), 0
        for _ in range(8):
            x = block(x)
            most = max(most, Kept.used - before)
        repeated = block.totals.nfe_backward
        x.square().sum().backward()
        del x
        assert Kept.used == before  # backward has freed all tapes
        found = [p.grad.clone() for p in block.parameters()]
        block.zero_grad()
        return found, most, block.totals.nfe_backward - repeated

    before = Kept.used
    gradients()  # measures a tape, and finds the step size of later calls
    expected, everything, none = gradients()
    monkeypatch.setattr(tape_budget, "ALL_TAPE_BYTES", before + everything // 2)
    found, most, repeated = gradients()
    assert 0 < most <= everything // 2
    assert none == 0 < repeated
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_tapes_of_a_discarded_solve_no_longer_count():
    block = snopt.NeuralODE(Timeless(nn.Linear(3, 3)))
    before = Kept.used
    x = block(torch.ones(2, 3))
    assert Kept.used > before
    del x
    assert Kept.used == before
