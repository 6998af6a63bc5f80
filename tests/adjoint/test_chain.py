"""Runs of single steps in one compiled call give what single calls give."""

import random

import pytest
import torch
from torch import nn

import snopt
from snopt.adjoint import chain
from snopt.adjoint.chain import Interval, Joined, single_steps
from snopt.adjoint.request import Request
from snopt.base.packing import Packing
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.settings import Settings
from tests.problems import Count

RUN = chain.RUN
SOLVER = {"rtol": 2e-2, "atol": 2e-2, "method": "bosh3"}
pytestmark = pytest.mark.usefixtures("traced")


class Stiffening(nn.Module):
    """Relaxation whose rate grows with the state: a large state needs small steps."""

    def __init__(self, draws: bool = False):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(0.05, dtype=torch.float64))
        self.mix = nn.Linear(3, 3, dtype=torch.float64)
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        self.draws = draws

    def forward(self, t, x):
        if self.draws:
            self.calls += 1.0
            x = x + 1e-3 * torch.randn_like(x)
        return torch.tanh(self.mix(x)) - self.rate * x * x.square().mean()


def update(end, start, layer, reading, way):
    """A layer, something that arrives, and perhaps a way around both."""
    after = torch.tanh(layer(end)) + reading
    return after if way is None else torch.where(way, after, start)


def updated(end, start, layer, reading, way):
    """The same for states with a part that stands beside."""
    return update(end[0], start[0], layer, reading, way)


class Pair(nn.Module):
    """The field on (x, factor)."""

    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, t, state):
        return state[1] * self.field(t, state[0]), torch.zeros_like(state[1])


def block(field=None, step=1.5, **more):
    """A compiled block with a carried step size."""
    made = snopt.NeuralODE(field or Stiffening(), compile=True, **SOLVER, **more)
    made.set_number("carried", step)
    return made


@pytest.fixture
def tried(monkeypatch):
    """The compiled calls: how many intervals, and whether they were accepted."""
    found = []
    attempt = Joined.attempt

    def noted(self, count, *args):
        accepted = attempt(self, count, *args)
        found.append((count, accepted))
        return accepted

    monkeypatch.setattr(Joined, "attempt", noted)
    return found


def singly(made, function, x, args, t=None, beside=None):
    """What a chain stands for, and the counts of every solve."""
    counts = []
    for k, each in enumerate(args):
        state = x if beside is None else (x, *beside[k])
        x = made.then(function, state, None if t is None else t[k], *each)
        counts.append(made.stats)
    return x, counts


def readings(count, large=()):
    """Arguments of updates; those at ``large`` make the state large."""
    layer = nn.Linear(3, 3, dtype=torch.float64)
    sizes = [12.0 if k in large else 1.0 for k in range(count)]
    drawn = [size * torch.rand(5, 3, dtype=torch.float64) for size in sizes]
    return layer, [(layer, reading.requires_grad_(), None) for reading in drawn]


def outcome(made, call, leaves):
    """Value, gradients, totals and carried step of a call of a copy of a block."""
    made.totals.reset()
    value = call(made)
    found = [value, *torch.autograd.grad(value.square().sum(), [*made.parameters(), *leaves])]
    totals = {name: count for name, count in vars(made.totals).items() if "_step" not in name}
    return found, totals, made.number("carried")


def same(first, second, counts):
    assert {name: first[1][name] for name in counts} == {name: second[1][name] for name in counts}
    assert first[2] == pytest.approx(second[2], rel=1e-9)
    for a, b in zip(first[0], second[0], strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-10)


def compare(made, function, x, args, **more):
    """Check a chain against single calls and against backpropagation through eager steps."""
    carried = made.number("carried")
    leaves = [x, *args[0][0].parameters(), *(each[1] for each in args)]
    found = outcome(made, lambda b: b.chain(function, x, args, **more), leaves)
    last = vars(made.stats)
    made.set_number("carried", carried)
    expected = outcome(made, lambda b: singly(b, function, x, args, **more)[0], leaves)
    same(found, expected, found[1])
    assert last == pytest.approx(vars(made.stats), rel=1e-9)
    direct = snopt.NeuralODE(
        made.field, adjoint=snopt.Direct(), options=made._settings.options, **SOLVER
    )
    direct.t0, direct.horizon = made.t0, made.horizon
    direct.set_number("carried", carried)
    direct.train(made.training)
    reference = outcome(direct, lambda b: singly(b, function, x, args, **more)[0], leaves)
    same(found, reference, ("accepted", "rejected", "solves"))


def start():
    return torch.rand(5, 3, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("training", [True, False])
def test_quiet_solves_run_together(tried, training):
    _, args = readings(2 * RUN + 2)
    made = block().train(training)
    compare(made, update, start(), args)
    assert tried[:4] == [(RUN, True), (RUN, True), (1, True), (1, True)]


@pytest.mark.parametrize("place", [0, 2])
def test_a_rejected_step_inside_a_run_is_taken_again_on_its_own(tried, place):
    _, args = readings(3 * RUN, large=[place - 1])
    x = start() if place else (12.0 * start()).detach().requires_grad_()
    made = block(step=2.0)
    compare(made, update, x, args)
    assert tried[0] == (RUN, False)
    assert made.totals.rejected == 1
    # Runs come back after as many single steps as a run has.
    assert (RUN, True) in tried


def test_a_wasted_run_leaves_no_trace_in_random_numbers_and_buffers(tried):
    _, args = readings(2 * RUN, large=[1])
    x, found = start(), []
    made = block(Stiffening(draws=True), step=2.0)
    for call in (made.chain, lambda *given: singly(made, *given)[0]):
        made.set_number("carried", 2.0)
        made.field.calls.zero_()
        torch.manual_seed(1)
        value = call(update, x, args)
        found.append([value, made.field.calls.clone(), torch.rand(3)])
    assert (RUN, False) in tried
    assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(found[0][2], found[1][2])
    assert torch.allclose(found[0][0], found[1][0])


def test_a_run_needs_a_carried_step_that_covers_each_interval(tried):
    _, args = readings(RUN + 1)
    t = [(0.0, 0.5)] * (RUN + 1)
    t[1] = (0.0, 40.0)
    compare(block(), update, start(), args, t=t)
    assert (RUN, False) not in tried
    assert (RUN, True) not in tried


def test_a_run_ends_where_the_controller_would_shorten_the_step(tried):
    """The steps are accepted, but the controller wants two for the interval after them."""
    _, args = readings(RUN)
    made = block(options={"safety": 0.45})
    compare(made, update, start(), args)
    assert tried[0] == (RUN, False)
    assert made.totals.rejected == 0
    assert made.totals.accepted > RUN


@pytest.mark.parametrize("wanted", [True, False])
def test_intervals_of_any_length_with_states_beside(tried, wanted):
    layer, args = readings(2 * RUN + 1)
    ways = [torch.rand(5, 1) < 0.7 for _ in args]
    args = [(layer, reading, way) for (_, reading, _), way in zip(args, ways, strict=True)]
    beside = [(torch.rand(5, 1, dtype=torch.float64),) for _ in args]
    t = [(0.2, 0.2 + random.Random(k).uniform(0.1, 1.0)) for k in range(len(args))]
    made = block(Pair(Stiffening()), step=1.2) if wanted else block(step=1.2)
    if wanted:
        compare(made, updated, start(), args, t=t, beside=beside)
    else:
        compare(made, update, start(), args, t=t)
    assert tried[:2] == [(RUN, True), (RUN, True)]


def test_intervals_of_different_kinds_do_not_run_together(tried):
    layer, args = readings(RUN)
    args[2] = (layer, args[2][1], torch.ones(5, 1, dtype=torch.bool))
    compare(block(), update, start(), args)
    assert all(count == 1 or not accepted for count, accepted in tried)


def test_fields_at_the_limit_of_one_step_waste_few_runs(tried):
    _, args = readings(8 * RUN, large=range(0, 8 * RUN, RUN - 1))
    compare(block(step=2.0), update, start(), args)
    wasted = sum(count == RUN and not accepted for count, accepted in tried)
    assert 0 < wasted <= 2 * 8  # of two chains


class Watched(Stiffening):
    """A field that wants to hear of steps."""

    def callback_step(self, t, x, dt):
        pass


@pytest.mark.parametrize(
    "obstacle", ["observer", "no_grad", "keep", "autocast", "callbacks", "stops", "carry"]
)
def test_what_needs_single_solves_gets_them(tried, obstacle):
    more = {
        "keep": {"adjoint": snopt.Checkpoint(keep=0)},
        "stops": {"options": {"step_t": [0.5]}},
        "carry": {"carry_step": False},
    }
    _, args = readings(RUN + 1)
    made = block(Watched() if obstacle == "callbacks" else None, **more.get(obstacle, {}))
    if obstacle == "observer":
        made.observer = Count()
    x = start()
    with (
        torch.set_grad_enabled(obstacle != "no_grad"),
        torch.autocast("cpu", enabled=obstacle == "autocast"),
    ):
        value = made.chain(update, x, args)
        made.set_number("carried", 1.5)
        expected, _ = singly(made, update, x, args)
    assert torch.allclose(value, expected)
    assert tried == []
    if obstacle == "observer":
        value.sum().backward()
        assert made.observer.told > 0


class Dictated(RungeKutta):
    """A stepper with error ratios given beforehand."""

    def __init__(self, tableau, like, settings, ratios):
        super().__init__(tableau, None, like, settings.tolerance(Packing.of(like)))
        self.ratios = iter(ratios)

    def attempt(self, t, h, x):
        self.nfe += self.tableau.stages + 1
        return x, next(self.ratios, 0.01)

    def accept(self):
        pass


@pytest.mark.parametrize("follows", [True, False])
def test_the_controller_judges_runs_as_it_judges_solves(follows):
    draw, x, judged = random.Random(0), torch.ones(2, dtype=torch.float64), set()
    eps = torch.finfo(x.dtype).eps
    for _ in range(300):
        options = draw.choice([{}, {"min_step": 0.9}, {"max_step": 0.8}, {"first_step": 1.0}])
        settings = Settings.parse("dopri5", 1e-3, 1e-3, options)
        carried = draw.uniform(0.8, 1.6)
        spans = [draw.uniform(0.3, 1.2) for _ in range(3)]
        ratios = [draw.choice([0.0, 1e-6, 0.1, 0.4, 1.0, 1.01, float("nan")]) for _ in range(3)]
        request = Request(None, None, Packing.of(x), [0.0, spans[0]], settings, settings,
                          first_step=carried)  # fmt: skip
        intervals = [Interval((0.0, span), ()) for span in spans]
        found = single_steps(request, intervals, ratios, eps, follows)
        expected, first = [], carried
        for span, ratio in zip(spans, ratios, strict=True):
            stepper = Dictated(settings.tableau, x, settings, [ratio, *[0.5] * 50])
            stats = settings.run(stepper, x, [0.0, span], first_step=first).stats
            expected.append(stats)
            first = stats.first_step if follows else first
        one_each = all(stats.accepted == 1 and not stats.rejected for stats in expected)
        judged.add(one_each)
        assert found == (expected if one_each else None)
    assert judged == {True, False}
