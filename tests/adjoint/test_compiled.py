"""Compiled steps: the same numbers, few compilations, and a way out.

A step that could not be compiled is an error in every test (pyproject.toml), unless expected.
"""

import itertools
import warnings

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import InvalidOption
from tests.problems import Count, TanhField


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, t, x):
        time = t.expand(x.shape[0], 1)
        return self.second(torch.tanh(self.first(torch.cat([x, time], 1))))


class Second(nn.Module):
    """A field on (x, factor)."""

    def __init__(self):
        super().__init__()
        self.inner = Field()

    def forward(self, t, state):
        return state[1] * self.inner(t, state[0]), torch.zeros_like(state[1])


def pair(field, **kwargs):
    settings = {"rtol": 1e-5, "atol": 1e-5, **kwargs}
    return (snopt.NeuralODE(field, compile=flag, **settings) for flag in (True, False))


def gradients(block, x, t=None):
    out = block(x, t)
    found = torch.autograd.grad((out**2).sum(), [x, *block.field.parameters()])
    return out.detach(), torch.cat([part.reshape(-1) for part in found])


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.usefixtures("traced")
def test_traced_steps_equal_eager_over_changing_batches_without_endless_compilation(keep):
    field = Field()
    compiled, eager = pair(field, horizon=2.0, adjoint=snopt.Checkpoint(keep))
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for size in (8, 5, 7, 3, 8, 6):
        x = torch.randn(size, 3, requires_grad=True)
        (out, found), (expected_out, expected) = gradients(compiled, x), gradients(eager, x)
        assert torch.allclose(out, expected_out, atol=1e-5)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
    # A static and a dynamic version of each of three functions, with room for one more
    # specialisation, but not one a batch size (which would be 18).
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"] - before
    assert graphs <= 8


def squeezed(end, start, layer, gain):
    """What follows a solve: a layer, perhaps a gain, and a way around both."""
    end, start = (end, start) if isinstance(end, torch.Tensor) else (end[0], start[0])
    return torch.sin(layer(end) if gain is None else gain * layer(end)) + start


@pytest.fixture
def joins(monkeypatch):
    """For every call of ``then`` of a compiled block, whether the function was in the step."""
    found = []

    class Joined(snopt.adjoint.chain.Joined):
        def solve(self, *args):
            states = super().solve(*args)
            found.append(self.value is not None)
            return states

    monkeypatch.setattr("snopt.adjoint.block.Joined", Joined)
    return found


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("parts", [1, 2])
def test_what_follows_a_single_step_is_compiled_with_it(joins, parts):
    layer = nn.Linear(3, 3)
    field = Field() if parts == 1 else Second()
    compiled, eager = pair(field, horizon=0.1, rtol=1e-3, atol=1e-3)
    for gain in (None, torch.tensor(2.0), None):
        x = torch.randn(5, 3, requires_grad=True)
        found = []
        for block in (compiled, eager):
            state = x if parts == 1 else (x, torch.ones(5, 1))
            out = block.then(squeezed, state, None, layer, gain)
            leaves = [x, *layer.parameters(), *block.field.parameters()]
            found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*found, strict=True))
    assert joins == [False, True, True]  # the first call has to guess a step


@pytest.mark.usefixtures("traced")
def test_what_follows_several_steps_comes_after_them(joins):
    layer = nn.Linear(3, 3)
    compiled, eager = pair(Field(), horizon=0.1, rtol=1e-3, atol=1e-3)
    x = torch.randn(5, 3, requires_grad=True)
    for times in (None, None, (0.0, 40.0), (0.0, 0.1)):
        found = []
        for block in (compiled, eager):
            out = block.then(squeezed, x, times, layer, None)
            found.append([out, *torch.autograd.grad(out.sum(), [x, *layer.parameters()])])
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(*found, strict=True))
    assert joins == [False, True, False, True]


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("hooked", ["block", "layer"])
def test_hooks_run_as_if_nothing_were_joined(joins, hooked):
    layer = nn.Linear(3, 3)
    block, _ = pair(Field(), horizon=0.1)
    calls = []
    {"block": block, "layer": layer}[hooked].register_forward_hook(lambda *_: calls.append(1))
    for _ in range(3):
        block.then(squeezed, torch.randn(5, 3), None, layer, None)
    assert len(calls) == 3
    assert joins == []


def test_the_real_compiler_gives_the_eager_gradient():
    compiled, eager = pair(Field())
    x = torch.randn(6, 3, requires_grad=True)
    found, expected = gradients(compiled, x), gradients(eager, x)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("traced")
def test_compiled_serves_many_times_and_observers():
    field = Field()
    compiled, eager = pair(field, carry_step=False)
    t = torch.tensor([0.0, 0.2, 0.21, 1.0])
    x = torch.randn(6, 3, requires_grad=True)
    for _ in range(2):
        (_, found), (_, expected) = gradients(compiled, x, t), gradients(eager, x, t)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)

    class Sum:
        quadrature = snopt.PerStep(2)
        total, moment = 0.0, 0.0

        def observe(self, t, weight, x, Q_x):
            self.total += weight
            self.moment = self.moment + weight * x.T @ Q_x

    before = gradients(compiled, x)[1]
    compiled.observer, eager.observer = Sum(), Sum()
    assert torch.equal(gradients(compiled, x)[1], before)
    gradients(eager, x)
    assert compiled.observer.total == pytest.approx(1.0)
    assert torch.allclose(compiled.observer.moment, eager.observer.moment, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("traced")
def test_solves_of_one_step_give_the_same_bits_when_observed():
    def iteration(block):
        block.field.zero_grad()
        x = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
        state = x
        for _ in range(3):
            state = block(state)
        (state**2).sum().backward()
        return [x.grad, *(p.grad.clone() for p in block.field.parameters())]

    compiled, eager = pair(Field(), horizon=0.1, rtol=1e-3, atol=1e-3)
    iteration(compiled)
    plain = iteration(compiled)
    assert compiled.stats.accepted == 1
    compiled.observer = Count()
    observed = iteration(compiled)
    assert compiled.observer.told == 3 * 2
    assert all(map(torch.equal, plain, observed))
    assert all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(plain, iteration(eager), strict=True)
    )


@pytest.mark.usefixtures("traced")
def test_a_solve_that_needs_more_than_its_one_step_is_solved_all_the_same():
    compiled, eager = pair(Field(), horizon=1.0, rtol=1e-8, atol=1e-8)
    x = torch.randn(4, 3, requires_grad=True)
    compiled.carried_buffer.fill_(2.0)
    found, expected = gradients(compiled, x)[1], gradients(eager, x)[1]
    assert compiled.stats.accepted > 1
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_compiler_itself_gives_what_eager_steps_give():
    """The other tests run traced graphs; those of whole models with the compiler are slow ones.

    A machine without a working C++ compiler fails here: the eager fallback would hide a defect.
    """
    compiled, eager = pair(Field(), horizon=0.1)
    x = torch.randn(4, 3, requires_grad=True)
    for horizon, steps in ((0.1, 1), (4.0, 2)):
        compiled.horizon = eager.horizon = horizon
        found, expected = gradients(compiled, x), gradients(eager, x)
        assert compiled.stats.accepted >= steps
        assert torch.allclose(found[0], expected[0], atol=1e-5)
        assert torch.allclose(found[1], expected[1], rtol=1e-4, atol=1e-5)


def test_where_no_compiler_works_eager_takes_over_with_one_warning(monkeypatch):
    def no_compiler(function, **options):
        def fails(*args):
            raise RuntimeError("no C++ compiler found")

        return fails

    monkeypatch.setattr("snopt.adjoint.compiled.torch.compile", no_compiler)
    compiled, eager = pair(Field())
    x = torch.randn(4, 3, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler found") as caught:
        found = gradients(compiled, x)[1]
    assert len(caught) == 1
    assert torch.allclose(found, gradients(eager, x)[1], rtol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        gradients(compiled, x)


@pytest.mark.usefixtures("traced")
def test_tuple_states_compile():
    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Field()

        def forward(self, t, state):
            dx = self.net(t, state[0])
            return dx, -dx.square().sum(1)

    compiled, eager = pair(Flow())
    x, zero = torch.randn(6, 3, requires_grad=True), torch.zeros(6)
    results = []
    for block in (compiled, eager):
        y, log_p = block((x, zero))
        results.append(torch.autograd.grad(y.sum() + log_p.sum(), [x, *block.field.parameters()]))
    for a, b in zip(*results, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kwargs", [{"method": "rk4"}, {"adjoint": "backsolve"}])
def test_what_is_not_compiled_is_said_at_once(kwargs):
    with pytest.raises(InvalidOption, match="compile=True"):
        snopt.NeuralODE(TanhField(), compile=True, **kwargs)


@pytest.mark.usefixtures("traced")
def test_models_of_many_structures_do_not_use_up_each_others_allowance():
    """The compiler gives up on a function that it has compiled eight times."""
    for width in range(2, 12):
        x = torch.randn(4, width, dtype=torch.float64)
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        snopt.NeuralODE(TanhField(width), compile=True)(x).sum().backward()
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > before


def test_many_models_of_one_structure_share_compiled_code():
    """The compiler gives up on a function after eight versions; equal models need one."""
    x = torch.randn(4, 3, requires_grad=True)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for _ in range(10):
        block = snopt.NeuralODE(TanhField(3).float(), compile=True)
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            for _ in range(2):
                block(x).sum().backward()
    # A first and a later call, of one step or of several: not one graph per model.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before <= 4


@pytest.mark.usefixtures("traced")
def test_a_model_in_all_its_uses_stays_within_the_compilers_allowance():
    """Batches of several sizes, with and without gradients, solves of one step and of many."""
    block = snopt.NeuralODE(TanhField(3), compile=True)
    for size, horizon, wanted in itertools.product((4, 5, 1, 7), (0.1, 8.0), (True, False)):
        block.horizon = horizon
        x = torch.randn(size, 3, dtype=torch.float64, requires_grad=wanted)
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
            block(x)
            block(x).sum().backward()
            with torch.no_grad():
                block(x)
