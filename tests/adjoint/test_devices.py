"""A solve reads one number per attempted step, and makes no tensors on another device."""

import itertools

import pytest
import torch
from torch import nn

import snopt
from tests.devices import Elsewhere, Reads


class Tanh(nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.layer = nn.Linear(3, 3, device=device)

    def forward(self, t, x):
        return torch.tanh(self.layer(x)) * (1.0 + torch.sin(9.0 * t))


RUNGE_KUTTA = itertools.product(
    ["checkpoint", "direct", "backsolve"], ["bosh3", "dopri5", "dopri8"]
)


@pytest.mark.parametrize(("adjoint", "method"), [*RUNGE_KUTTA, ("reversible", "alf")])
def test_one_number_is_read_per_attempted_step_and_none_for_horizon_and_carried_step(
    adjoint, method
):
    torch.manual_seed(0)
    block = snopt.NeuralODE(Tanh(), method=method, adjoint=adjoint, rtol=1e-4, atol=1e-4)
    x = torch.randn(5, 3, requires_grad=True)
    block(x).sum().backward()
    with Reads() as reads:
        y = block(x)
    attempts = block.stats.accepted + block.stats.rejected
    assert attempts > 1
    assert reads.count <= attempts
    before = block.stats.nfe_forward
    with Reads() as reads:
        y.sum().backward()
    assert before == block.stats.nfe_forward
    if adjoint != "backsolve":  # which solves again
        assert reads.count == 0


def test_changing_the_horizon_reads_nothing():
    block = snopt.NeuralODE(Tanh(), method="rk4", options={"step_size": 0.25})
    x = torch.randn(5, 3)
    block(x)
    with Reads() as reads:
        block.horizon = 2.0
        assert block.horizon == 2.0
        block(x)
    assert reads.count == 1  # whether the result is finite


@pytest.mark.parametrize("method", ["dopri5", "dopri8"])
@pytest.mark.parametrize("adjoint", [snopt.Checkpoint(keep=0), snopt.Checkpoint(keep=99),
                                     snopt.Direct(), snopt.Backsolve()], ids=repr)  # fmt: skip
def test_a_solve_stays_on_the_device_of_its_state(adjoint, method):
    field = Tanh("meta")
    block = snopt.NeuralODE(field, method=method, adjoint=adjoint, options={"first_step": 0.05})
    block.to("meta")
    x = torch.empty(5, 3, device="meta", requires_grad=True)
    with Elsewhere():
        block(x).sum().backward()  # tables of coefficients are made once
    with Elsewhere() as elsewhere:
        y = block(x)
    attempts = block.stats.accepted + block.stats.rejected
    assert attempts > 2
    assert elsewhere.reads == attempts
    assert elsewhere.copies.shapes == []
    assert elsewhere.made == []
    with Elsewhere() as elsewhere:
        y.sum().backward()
    assert elsewhere.made == []
    if not isinstance(adjoint, snopt.Backsolve):
        assert (elsewhere.reads, elsewhere.copies.shapes) == (0, [])


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct"])
def test_a_first_step_is_guessed_with_two_reads(adjoint):
    x = torch.empty(5, 3, device="meta", requires_grad=True)
    adjoint = snopt.Checkpoint(keep=0) if adjoint == "checkpoint" else adjoint
    for _ in range(2):
        stats = snopt.SolveStats()
        with Elsewhere() as elsewhere:
            snopt.odeint(Tanh("meta"), x, [0.0, 1.0], stats=stats, adjoint=adjoint)
    assert elsewhere.reads == 2 + stats.accepted + stats.rejected
    assert (elsewhere.copies.shapes, elsewhere.made) == ([], [])


def test_steps_per_sample_read_once_per_attempt():
    x = torch.empty(5, 3, device="meta")
    field = Tanh("meta")
    with Elsewhere() as elsewhere:
        solution = snopt.solve(field, x, [0.0, 1.0], per_sample=True)
    sample = solution.sample_stats[0]
    assert elsewhere.reads == 2 + sample.accepted + sample.rejected
