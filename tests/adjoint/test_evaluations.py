"""How often a field is evaluated, against the least that its steps need."""

import functools

import pytest
import torch
from torch import nn

import snopt
from snopt.ode import tableau_named


class Counted(nn.Module):
    """A tanh field that counts its calls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3, dtype=torch.float64)
        self.calls = 0

    def forward(self, t, x):
        self.calls += 1
        return torch.tanh(self.layer(x)) * (1.0 + torch.sin(3.0 * t))


def least(method, stats):
    """The evaluations of all attempts; a slope at the end of a step is the next one's first."""
    tableau, attempts = tableau_named(method), stats.accepted + stats.rejected
    if tableau.fsal:
        return 1 + tableau.stages * attempts
    return stats.accepted + (tableau.stages - 1) * attempts


def start():
    return torch.linspace(-1.0, 1.0, 12, dtype=torch.float64).view(4, 3).requires_grad_()


@pytest.mark.parametrize("method", ["bosh3", "dopri5", "tsit5", "dopri8"])
@pytest.mark.parametrize("adjoint", ["checkpoint", "direct", "backsolve"])
def test_a_block_wastes_no_evaluation_after_its_first_call(adjoint, method):
    field, x = Counted(), start()
    block = snopt.NeuralODE(field, method=method, adjoint=adjoint, rtol=1e-5, atol=1e-5)
    block(x).sum().backward()
    for _ in range(3):
        field.calls = 0
        y = block(x)
        assert field.calls == block.stats.nfe_forward == least(method, block.stats)
        y.sum().backward()
        assert field.calls == block.stats.nfe_forward + block.stats.nfe_backward
        if adjoint != "backsolve":
            assert block.stats.nfe_backward == 0  # all tapes fit


@pytest.mark.parametrize("keep", [0, 2])
@pytest.mark.parametrize("method", ["bosh3", "dopri5", "tsit5", "dopri8"])
def test_a_backward_pass_runs_accepted_steps_without_tapes_once(method, keep):
    field, x = Counted(), start()
    adjoint = snopt.Checkpoint(keep)
    block = snopt.NeuralODE(field, method=method, adjoint=adjoint, rtol=1e-5, atol=1e-5)
    block(x).sum().backward()
    assert block.stats.accepted > keep
    tableau, again = tableau_named(method), block.stats.accepted - keep
    assert block.stats.nfe_backward == tableau.stages * again


@pytest.mark.parametrize("method", ["dopri5", "dopri8"])
def test_the_first_call_pays_for_a_guess_and_a_look_at_the_tape(method):
    field, x = Counted(), start()
    block = snopt.NeuralODE(field, method=method, rtol=1e-5, atol=1e-5)
    block(x)
    assert block.stats.nfe_forward == least(method, block.stats) + 1  # the guess
    assert field.calls == block.stats.nfe_forward + 1  # how large a tape is


@pytest.mark.parametrize("kind", ["module", "closure", "method", "partial"])
def test_the_tape_is_measured_once_whatever_the_field_is(kind):
    field, x = Counted(), start()

    def solve():
        def closure(t, x):
            return field(t, x)

        function = {
            "module": lambda: field,
            "closure": lambda: closure,
            "method": lambda: field.forward,
            "partial": lambda: functools.partial(closure),
        }[kind]()
        stats = snopt.SolveStats()
        field.calls = 0
        params = tuple(field.parameters())
        snopt.odeint(function, x, [0.0, 1.0], rtol=1e-4, atol=1e-4, stats=stats,
                     adjoint_params=params)  # fmt: skip
        return field.calls - stats.nfe_forward

    assert [solve(), solve(), solve()] == [1, 0, 0]


def test_a_larger_state_is_measured_anew():
    field = Counted()
    for x, extra in ((start(), 1), (start(), 0), (start()[:2], 1)):
        stats = snopt.SolveStats()
        field.calls = 0
        snopt.odeint(field, x, [0.0, 1.0], rtol=1e-4, atol=1e-4, stats=stats)
        assert field.calls - stats.nfe_forward == extra


def test_a_jump_costs_one_evaluation():
    """The slope before it belongs to the error estimate, the slope behind it to the next step."""
    field, x = Counted(), start()
    options = {"jump_t": [0.4], "first_step": 0.1}
    stats = snopt.SolveStats()
    with torch.no_grad():
        snopt.odeint(field, x, [0.0, 1.0], rtol=1e-4, atol=1e-4, stats=stats, options=options)
    assert field.calls == stats.nfe_forward == least("dopri5", stats) + 1


@pytest.mark.parametrize("method", ["bosh3", "dopri5", "tsit5"])
def test_outputs_inside_steps_are_free(method):
    field, x, times = Counted(), start(), [0.0, 0.123, 0.456, 1.0]
    block = snopt.NeuralODE(field, method=method, rtol=1e-4, atol=1e-4)
    block(x, times)
    field.calls = 0
    block(x, times)
    assert field.calls == least(method, block.stats)
