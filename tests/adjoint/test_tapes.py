"""Which evaluations the checkpointed adjoint differentiates: those of the accepted steps."""

import pytest
import torch
from torch import nn

import snopt
from snopt.adjoint import tape_budget
from snopt.adjoint.tape_budget import Kept
from snopt.lab.paper.peak import peak_megabytes


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


class Wide(nn.Module):
    """A field whose tape is hundreds of times larger than its state; counts what it tapes."""

    def __init__(self, width=2048, drift=1.0):
        super().__init__()
        self.drift = drift
        self.first, self.second = nn.Linear(4, width), nn.Linear(width, 4)
        self.taped = 0

    def forward(self, t, x):
        self.taped += torch.is_grad_enabled()
        return self.second(torch.tanh(self.first(x) + self.drift * t))


def iterate(field, keep=None, **solver):
    """Return gradients, bit for bit comparable, and the block after one iteration."""
    block = snopt.NeuralODE(field, adjoint=snopt.Checkpoint(keep), **solver)
    x = torch.linspace(-1.0, 1.0, 512).reshape(128, 4).requires_grad_()
    found = torch.autograd.grad(block(x).square().sum(), [x, *field.parameters()])
    return found, block


RK4 = {"method": "rk4", "options": {"step_size": 0.25}}  # 4 steps of 4 evaluations
SOLVERS = {"rk4": RK4, "dopri5": {"rtol": 1e-6, "atol": 1e-6}}


@pytest.mark.parametrize("tapes", [0, 1, 3, 4, 6, 15, 16, 99])
def test_the_budget_is_spent_by_single_evaluations(monkeypatch, tapes):
    field = Wide()
    expected, _ = iterate(field, 99, **RK4)
    each = snopt.adjoint.tape_budget._MEASURED[field].popitem()[1]
    monkeypatch.setattr(tape_budget, "TAPE_BYTES", tapes * each + each // 2)
    field.taped = 0
    found, block = iterate(field, **RK4)
    assert block.stats.nfe_backward == max(0, 16 - tapes)
    assert field.taped == 16 + 1  # every evaluation is taped once, and one to measure
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("keep", [None, 0, 1, 2])
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_gradients_are_the_same_to_the_bit_whatever_is_kept(solver, keep):
    # Two steps of dopri5 share a stage whose time each of them rounds, so time is left out.
    field = Wide(32, drift=float(solver is RK4))
    expected, _ = iterate(field, 99, **solver)
    assert all(map(torch.equal, iterate(field, keep, **solver)[0], expected))


def test_the_slope_at_the_end_is_not_taped():
    """It is evaluated for the error estimate, and nothing differentiates it."""
    field = Wide(32)
    iterate(field, 99, **SOLVERS["dopri5"])
    field.taped = 0
    _, block = iterate(field, 99, **SOLVERS["dopri5"])
    assert field.taped == 6 * block.stats.accepted > 6


def test_stages_are_evaluated_again_one_by_one():
    """One new tape exists at a time, not those of a step."""
    field = Wide()
    iterate(field, 0, **RK4)
    one = 128 * 2048 * 4 / 2**20  # megabytes of hidden units
    assert peak_megabytes(lambda: iterate(field, 0, **RK4)) < 4 * one


@pytest.mark.parametrize(("steps", "kept"), [(2, True), (1000, False)])
def test_values_of_stages_take_no_more_than_they_save(steps, kept):
    """They are kept for a few steps, and for none once they would outgrow the tapes of a step."""
    block = snopt.NeuralODE(
        Wide(32), method="rk4", options={"step_size": 1.0 / steps}, adjoint=snopt.Checkpoint(0)
    )
    before = Kept.used
    x = block(torch.ones(128, 4))
    assert (Kept.used > before) == kept
    assert Kept.used - before <= 3 * next(iter(tape_budget._MEASURED[block.field].values()))
    del x
    assert Kept.used == before
