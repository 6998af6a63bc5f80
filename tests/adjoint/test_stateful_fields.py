"""Fields that draw random numbers or keep running statistics."""

import functools

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import GradientError
from snopt.base.isolation import solver
from tests.problems import Count

TIMES = [0.0, 0.33, 0.35, 1.0]


class Noisy(nn.Module):
    """Dropout, whose masks have to be drawn again."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 16), nn.Linear(16, 3)
        self.drop = nn.Dropout(0.3)
        self.double()

    def forward(self, t, x):
        return self.second(self.drop(torch.tanh(self.first(x) + torch.sin(6 * t))))


class Late(Noisy):
    """Draws in the second half only, which a look at the start does not see."""

    def forward(self, t, x):
        self.drop.train(bool(t > 0.5))
        return super().forward(t, x)


class Normed(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        self.first, self.second = nn.Linear(3, 16), nn.Linear(16, 3)
        self.norm, self.drop = nn.BatchNorm1d(16), nn.Dropout(drop)
        self.double()

    def forward(self, t, x):
        return self.second(self.drop(torch.tanh(self.norm(self.first(x)))))


def iterate(field, times=TIMES, observer=None, **solver):
    """Gradients, the random number that follows, and the buffers."""
    torch.manual_seed(5)
    field.train()
    for module in field.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.reset_running_stats()
    settings = {"rtol": 1e-3, "atol": 1e-3, **solver}
    x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).requires_grad_()
    x = snopt.odeint(field, x0, times, observer=observer, **settings)
    found = torch.autograd.grad((x[1:] ** 2).sum(), [x0, *field.parameters()])
    flat = torch.cat([part.reshape(-1) for part in found])
    return flat, torch.rand(1), [buffer.clone() for buffer in field.buffers()]


def agree(one, two):
    (found, draw, buffers), (expected, expected_draw, expected_buffers) = one, two
    assert (found - expected).norm() <= 1e-10 * expected.norm()
    assert torch.equal(draw, expected_draw)
    for buffer, other in zip(buffers, expected_buffers, strict=True):
        assert torch.allclose(buffer.double(), other.double(), rtol=1e-10, atol=0.0)


FIXED = {"method": "rk4", "options": {"step_size": 0.1}}
ADAPTIVE = {"method": "dopri5", "options": {"min_step": 0.02}}
SOLVERS = {"rk4": FIXED, "dopri5": ADAPTIVE, "dopri8": {**ADAPTIVE, "method": "dopri8"}}


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("keep", [None, 0, 1, 4])
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", [Noisy, Late, Normed, lambda: Normed(0.3)])
def test_checkpoint_repeats_what_the_forward_pass_drew(kind, name, keep, observed):
    field = kind()
    expected = iterate(field, adjoint="direct", **SOLVERS[name])
    observer = Count() if observed else None
    found = iterate(field, observer=observer, adjoint=snopt.Checkpoint(keep), **SOLVERS[name])
    agree(found, expected)
    assert observer is None or observer.told > 0


@pytest.mark.parametrize("kind", [Noisy, Normed, lambda: Normed(0.3)])
def test_observing_a_direct_solve_leaves_no_trace(kind):
    field = kind()
    expected = iterate(field, adjoint="direct", **FIXED)
    agree(iterate(field, observer=Count(), adjoint="direct", **FIXED), expected)


@pytest.mark.parametrize("adjoint", ["backsolve", "reversible"])
def test_statistics_are_those_of_the_forward_pass(adjoint):
    field = Normed()
    solver = {} if adjoint == "reversible" else FIXED
    with torch.no_grad():
        x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
        snopt.odeint(field, x0, TIMES, rtol=1e-3, atol=1e-3, adjoint=adjoint, **solver)
    expected = [buffer.clone() for buffer in field.buffers()]
    found = iterate(field, adjoint=adjoint, observer=Count(), **solver)[2]
    assert all(map(torch.equal, found, expected))
    assert expected[2] > 0


@pytest.mark.parametrize("adjoint", ["backsolve", "reversible"])
def test_an_adjoint_that_cannot_repeat_random_numbers_says_so(adjoint):
    solver = {} if adjoint == "reversible" else FIXED
    with pytest.raises(GradientError, match=r"draws random numbers.*adjoint='checkpoint'"):
        iterate(Noisy(), adjoint=adjoint, **solver)
    iterate(Noisy().eval().requires_grad_(), adjoint="checkpoint", **FIXED)


def passed(t, x):
    return t - 0.55


def test_the_search_for_an_event_leaves_no_trace():
    field = Normed()
    x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    counts = []
    for live in (False, True):
        field.norm.reset_running_stats()
        with torch.set_grad_enabled(live):
            t, _ = snopt.odeint(field, x0, [0.0, 1.0], event_fn=passed, **FIXED)
        assert t.item() == pytest.approx(0.55, abs=1e-6)
        counts.append(field.norm.num_batches_tracked.item())
    # Searched for, the event is met inside a step; walked to, it is an output of that step.
    assert abs(counts[0] - counts[1]) <= 1
    with pytest.raises(GradientError, match="draws random numbers"):
        snopt.odeint(Noisy(), x0, [0.0, 1.0], event_fn=passed, **FIXED)


@pytest.mark.parametrize("keep", [None, 0, 2])
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", [Noisy, lambda: Normed(0.3)])
def test_a_second_backward_pass_repeats_the_first(kind, name, keep):
    field, x0 = kind(), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    x = snopt.odeint(field, x0, TIMES, adjoint=snopt.Checkpoint(keep), **SOLVERS[name])
    forward = [buffer.clone() for buffer in field.buffers()]
    torch.manual_seed(7)
    (first,) = torch.autograd.grad(x.sin().sum(), x0, retain_graph=True)
    (second,) = torch.autograd.grad(x.sin().sum(), x0)
    assert (first - second).norm() <= 1e-12 * first.norm()
    draw = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(draw, torch.rand(1))
    assert all(map(torch.equal, field.buffers(), forward))


@pytest.mark.parametrize("wrapped", ["lambda", "method", "partial"])
def test_the_modules_of_a_function_are_found(wrapped):
    field = Normed()
    function = {
        "lambda": lambda t, x: field(t, x),
        "method": field.forward,
        "partial": functools.partial(field.forward),
    }[wrapped]
    x0 = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    params, adjoint = tuple(field.parameters()), snopt.Checkpoint(keep=0)
    x = snopt.odeint(function, x0, TIMES, adjoint=adjoint, adjoint_params=params, **FIXED)
    forward = [buffer.clone() for buffer in field.buffers()]
    x.sum().backward()
    assert all(map(torch.equal, field.buffers(), forward))


def test_an_observer_may_draw_random_numbers_of_its_own():
    class Drawing(Count):
        def observe(self, t, weight, x, Q_x):
            self.drawn = torch.rand(1)

    first, second = Drawing(), Drawing()
    field, x0 = Normed(), torch.randn(4, 3, dtype=torch.float64)
    for observer in (first, second):
        x = snopt.odeint(field, x0, [0.0, 1.0], observer=observer, **ADAPTIVE)
        x[-1].sum().backward()
    assert not torch.equal(first.drawn, second.drawn)


def training_step(block, x):
    torch.manual_seed(5)
    out = block(x)
    found = torch.autograd.grad((out**2).sum(), list(block.parameters()))
    return torch.cat([part.reshape(-1) for part in found]), torch.rand(1)


@pytest.mark.usefixtures("traced")
def test_compiled_steps_that_would_have_to_repeat_random_numbers_are_run_eagerly():
    field, x = Normed(0.3), torch.randn(4, 3, dtype=torch.float64)
    eager, compiled = (
        snopt.NeuralODE(
            field, compile=flag, options={"min_step": 0.05}, adjoint=snopt.Checkpoint(keep=1)
        )
        for flag in (False, True)
    )
    expected = training_step(eager, x)
    statistics = [buffer.clone() for buffer in field.buffers()]
    field.norm.reset_running_stats()
    with pytest.warns(RuntimeWarning, match="random numbers of the field"):
        found = training_step(compiled, x)
    assert all(map(torch.equal, found, expected))
    assert all(map(torch.equal, field.buffers(), statistics))


@pytest.mark.usefixtures("traced")
def test_a_compiled_field_with_statistics_updates_them_in_the_forward_pass_only():
    """What is not taped is run again eagerly: the compiler takes no changing buffers there."""
    field = Normed()
    own = {"adjoint": snopt.Checkpoint(keep=1), "options": {"max_step": 0.1}}
    block = snopt.NeuralODE(field, compile=True, **own)
    out = block(torch.randn(4, 3, dtype=torch.float64))
    forward = [buffer.clone() for buffer in field.buffers()]
    with pytest.warns(RuntimeWarning, match="could not be compiled"):
        out.sum().backward()
    assert all(map(torch.equal, field.buffers(), forward))
    assert block.stats.nfe_backward > 0


class Fails(Normed):
    calls, limit = 0, 10**9

    def forward(self, t, x):
        self.calls += 1
        if self.calls > self.limit:
            raise RuntimeError("the field has had enough")
        return super().forward(t, x)


@pytest.mark.parametrize("keep", [0, 2])
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible"])
def test_a_field_that_fails_in_the_backward_pass_leaves_nothing_behind(adjoint, keep):
    field = Fails(drop=0.3 if adjoint == "checkpoint" else 0.0)
    options = {} if adjoint == "reversible" else FIXED
    chosen = snopt.Checkpoint(keep) if adjoint == "checkpoint" else adjoint
    block = snopt.NeuralODE(field, adjoint=chosen, **options)
    block.observer = Count()
    x = torch.randn(4, 3, dtype=torch.float64)
    out = block(x)
    buffers, carried = [b.clone() for b in block.buffers()], dict(block.named_buffers())
    torch.manual_seed(7)
    field.limit = field.calls + 3
    with pytest.raises(RuntimeError, match="had enough"):
        out.sum().backward()
    draw = torch.rand(1)
    torch.manual_seed(7)
    assert torch.equal(draw, torch.rand(1))
    assert solver.depth == 0
    assert all(new is carried[name] for name, new in block.named_buffers())
    assert all(map(torch.equal, block.buffers(), buffers))
    field.limit = 10**9
    block(x).sum().backward()
