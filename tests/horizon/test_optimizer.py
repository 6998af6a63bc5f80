"""The optimizer's interface: loops, bounds, skipped updates, checkpoints, SNOpt beside it."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import InvalidTimes, UnknownName
from snopt.horizon import HorizonOptimizer
from tests.horizon.problems import DTYPE, Target
from tests.problems import TanhField


def classifier(seed=0, **kwargs):
    torch.manual_seed(seed)
    block = snopt.NeuralODE(TanhField(), **{"rtol": 1e-4, "atol": 1e-4, **kwargs})
    return nn.Sequential(nn.Linear(3, 3), block, nn.Linear(3, 4)).double()


def batch(i, n=16):
    generator = torch.Generator().manual_seed(i)
    x = torch.randn(n, 3, generator=generator, dtype=DTYPE)
    return x, x.argmax(1)


def train(model, optimizer, horizon, iterations, start=0):
    for i in range(start, start + iterations):
        x, y = batch(i)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if horizon is not None:
            horizon.step()
    return [record.horizon for record in horizon.history] if horizon is not None else []


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


# -------------------------------------------------------------------------------- the loop


def own_feedback(Q_T, Q_TT, Q_Tu_du):
    return (Q_T + Q_Tu_du) / abs(Q_TT)


def test_a_function_is_a_policy_and_is_told_of_the_feedback():
    paths = []
    for policy in ("feedback", own_feedback):
        model = classifier()
        horizon = HorizonOptimizer(model, penalty=0.1, every=3, policy=policy)
        paths.append(train(model, adam(model), horizon, 12))
        assert any(record.feedback != 0 for record in horizon.history)
    assert paths[0] == paths[1]
    assert pickle.loads(pickle.dumps(horizon)).policy is own_feedback


def test_a_function_that_gives_no_finite_step_changes_nothing():
    model = classifier()
    horizon = HorizonOptimizer(model, every=1, policy=lambda Q_T, Q_TT, Q_Tu_du: math.inf)
    with pytest.warns(RuntimeWarning, match="do not give a finite step"):
        train(model, adam(model), horizon, 2)
    assert (horizon.counts.skipped, model[1].horizon) == (2, 1.0)


@pytest.mark.parametrize("policy", ["feedback", "newton", "gradient"])
def test_every_policy_trains(policy):
    model = classifier()
    horizon = HorizonOptimizer(model, penalty=0.1, every=3, policy=policy)
    path = train(model, adam(model), horizon, 12)
    assert len(path) == horizon.counts.updates == 4
    assert len({1.0, *path}) == 5
    assert path[-1] == model[1].horizon
    assert [record.iteration for record in horizon.history] == [3, 6, 9, 12]
    assert all(math.isfinite(value) for record in horizon.history for value in record)


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible", "direct"])
def test_every_adjoint_moves_the_horizon_alike(adjoint):
    paths = []
    for name in ("checkpoint", adjoint):
        model = classifier(adjoint=name, rtol=1e-5, atol=1e-5)
        paths.append(train(model, adam(model), HorizonOptimizer(model, every=2), 6))
    assert paths[0] == pytest.approx(paths[1], rel=1e-3)


@pytest.mark.parametrize("make", [
    lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9),
    lambda m: torch.optim.AdamW(m.parameters()),
    lambda m: snopt.SNOpt(m),
])  # fmt: skip
def test_any_optimizer_of_the_parameters_will_do(make):
    model = classifier()
    horizon = HorizonOptimizer(model, every=2)
    assert len(train(model, make(model), horizon, 6)) == 3


def test_blocks_are_found_in_a_model_and_counted_once():
    model = nn.Sequential(classifier(), nn.Linear(4, 3).double(), classifier(1))
    horizon = HorizonOptimizer(model)
    assert horizon.blocks == [model[0][1], model[2][1]]
    assert HorizonOptimizer(model[0][1]).blocks == [model[0][1]]
    assert HorizonOptimizer([model[0][1], model]).blocks == horizon.blocks


def test_each_block_has_a_horizon_of_its_own():
    torch.manual_seed(0)
    one, two = snopt.NeuralODE(TanhField(), 0.5), snopt.NeuralODE(TanhField(), 2.0)
    model = nn.Sequential(one, two, nn.Linear(3, 4, dtype=DTYPE))
    horizon = HorizonOptimizer([one, two], every=1, penalty=0.1)
    train(model, adam(model), horizon, 3)
    assert {record.block for record in horizon.history} == {0, 1}
    assert one.horizon != 0.5
    assert two.horizon != 2.0


def test_q_t_is_the_slope_of_loss_and_penalty():
    model = classifier(rtol=1e-9, atol=1e-9)
    x, y = batch(0)
    horizon = HorizonOptimizer(model, every=1, penalty=lambda T: 0.3 * T**3)
    values = []
    for T in (1.0 + 1e-4, 1.0 - 1e-4):
        model[1].horizon = T
        with torch.no_grad():
            values.append(float(nn.functional.cross_entropy(model(x), y)) + 0.3 * T**3)
    model[1].horizon = 1.0
    optimizer = adam(model)
    train(model, optimizer, horizon, 1)
    record = horizon.history[0]
    slope = (values[0] - values[1]) / 2e-4
    assert pytest.approx(slope, rel=1e-3) == record.Q_T
    assert pytest.approx(1.8 + (record.Q_T - 0.9) ** 2, rel=1e-9) == record.Q_TT


def test_feedback_is_the_mixed_derivative_times_the_parameters_change():
    model = classifier()
    optimizer = adam(model)
    horizon = HorizonOptimizer(model, every=1, penalty=0.1)
    before = [p.detach().clone() for p in model[1].field.parameters()]
    train(model, optimizer, horizon, 1)
    record = horizon.history[0]
    slope = record.Q_T - 0.1
    params = list(model[1].field.parameters())
    along = sum(
        float((p.grad * (p.detach() - b)).sum()) for p, b in zip(params, before, strict=True)
    )
    assert along < 0
    assert record.feedback == pytest.approx(slope * along, rel=1e-9)


def test_a_running_cost_adds_its_value_at_the_horizon():
    records = []
    for running in (None, lambda t, x, params: 0.25 * t + 0 * x.sum()):
        model = classifier()
        horizon = HorizonOptimizer(model, every=1, running_cost=running)
        train(model, adam(model), horizon, 1)
        records.append(horizon.history[0])
    assert pytest.approx(0.25, rel=1e-6) == records[1].Q_T - records[0].Q_T
    assert pytest.approx(records[0].Q_TT) == records[1].Q_TT


def test_a_scaled_loss_is_scaled_back():
    paths = []
    for scale in (1.0, 1024.0):
        target = Target(n=3)
        (scale * target.loss()).backward()
        target.optimizer.step(loss_scale=scale)
        paths.append(target.block.horizon)
    assert paths[0] == pytest.approx(paths[1], rel=1e-12)


def test_the_update_comes_after_as_many_iterations_as_asked():
    model = classifier()
    horizon = HorizonOptimizer(model, every=4)
    assert train(model, adam(model), horizon, 3) == []
    assert len(train(model, adam(model), horizon, 1, start=3)) == 1


# ---------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(("t0", "start"), [(0.0, 1.0), (2.0, 3.0), (0.0, -1.0), (1.0, 0.0)])
def test_the_length_stays_within_its_bounds_either_way_in_time(t0, start):
    for penalty, end in ((100.0, 0.3), (lambda T: -100.0 * (T - t0).abs(), 1.7)):
        model = classifier(t0=t0, horizon=start)
        horizon = HorizonOptimizer(
            model, every=1, policy="gradient", lr=1.0, penalty=penalty, minimum=0.3, maximum=1.7
        )
        train(model, adam(model), horizon, 12)
        expected = t0 + math.copysign(end, start - t0)
        assert model[1].horizon == pytest.approx(expected, rel=1e-6)


def test_one_update_changes_the_length_by_a_bounded_part():
    target = Target(c=1e3, start=1.0, policy="gradient", max_change=0.2)
    assert target.run(1) == pytest.approx([0.8])


@pytest.mark.parametrize("horizon", [0.001, -0.001])
def test_a_horizon_next_to_its_start_is_refused(horizon):
    with pytest.raises(InvalidTimes, match="minimum"):
        HorizonOptimizer(snopt.NeuralODE(nn.Identity(), horizon))


# ---------------------------------------------------------------------- skipped and counted


def test_a_block_that_was_not_called_is_skipped_and_counted():
    target = Target(start=0.5)
    with pytest.warns(RuntimeWarning, match="no gradient reached"):
        target.optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target.optimizer.step()
    counts = target.optimizer.counts
    assert (counts.iterations, counts.uncalled, counts.skipped, counts.updates) == (2, 2, 2, 0)
    assert target.block.horizon == 0.5
    assert target.optimizer.history == []


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_skipped_and_counted(bad):
    target = Target(start=0.5)
    (target.loss() * bad).backward()
    with pytest.warns(RuntimeWarning, match="not finite"):
        target.optimizer.step()
    assert target.optimizer.counts.not_finite == target.optimizer.counts.skipped == 1
    assert target.block.horizon == 0.5
    target.loss().backward()
    target.optimizer.step()
    assert target.optimizer.counts.updates == 1
    assert target.block.horizon != 0.5


def test_one_bad_iteration_of_many_is_left_out_of_the_average():
    paths = []
    for bad in (False, True):
        target = Target(start=0.5, every=3 if bad else 2)
        for scale in (1.0, float("nan"), 1.0) if bad else (1.0, 1.0):
            (target.loss() * scale).backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                target.optimizer.step()
        paths.append(target.block.horizon)
    assert paths[0] == pytest.approx(paths[1], rel=1e-12)
    assert paths[0] != 0.5


@pytest.mark.parametrize("policy", ["feedback", "newton"])
def test_without_curvature_there_is_no_step(policy):
    """A loss that does not depend on the solve's length, and no penalty."""

    class Still(nn.Module):
        def forward(self, t, x):
            return 0 * x

    block = snopt.NeuralODE(Still(), 0.5)
    horizon = HorizonOptimizer(block, every=1, penalty=0.0, policy=policy)
    block(torch.ones(2, 2, requires_grad=True)).sum().backward()
    with pytest.warns(RuntimeWarning, match="no curvature"):
        horizon.step()
    assert horizon.counts.skipped == 1
    assert block.horizon == 0.5


def test_feedback_without_gradients_says_when_to_call():
    model = classifier()
    optimizer, horizon = adam(model), HorizonOptimizer(model, every=1)
    x, y = batch(0)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match="before zero_grad"):
        horizon.step()


def test_parameters_may_be_frozen_and_thawed_between_updates():
    model = classifier()
    horizon = HorizonOptimizer(model, every=4)
    for i, trained in enumerate((True, False, True, True)):
        model[1].field.first.requires_grad_(trained)
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), horizon, 1, start=i)
    assert horizon.counts.updates == 1


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"lr": 0.0}, ValueError, "lr = 0.0"),
        ({"lr": float("nan")}, ValueError, "lr = nan"),
        ({"penalty": -1.0}, ValueError, "penalty = -1.0"),
        ({"every": 0}, ValueError, "every = 0"),
        ({"every": 1.5}, ValueError, "every = 1.5"),
        ({"policy": "feedbak"}, UnknownName, "did you mean 'feedback'"),
        ({"minimum": 0.0}, ValueError, "minimum = 0.0"),
        ({"minimum": 2.0, "maximum": 1.0}, ValueError, "maximum = 1.0"),
        ({"max_change": 0.0}, ValueError, "max_change = 0.0"),
        ({"maximum": 0.5}, InvalidTimes, "change one of them"),
    ],
)
def test_bad_arguments_are_explained(kwargs, error, message):
    with pytest.raises(error, match=message):
        HorizonOptimizer(snopt.NeuralODE(nn.Identity()), **kwargs)


@pytest.mark.parametrize("blocks", [nn.Linear(1, 1), []])
def test_a_model_without_blocks_is_refused(blocks):
    with pytest.raises(ValueError, match=r"no snopt.NeuralODE among"):
        HorizonOptimizer(blocks)


# ------------------------------------------------------------------- checkpoints and copies


@pytest.mark.parametrize("cut", [4, 5])
def test_a_restored_run_is_the_uninterrupted_one_bit_for_bit(cut):
    """Cut at an update, and between two."""
    model = classifier()
    optimizer, horizon = adam(model), HorizonOptimizer(model, every=2, penalty=0.1)
    whole = train(model, optimizer, horizon, 10)

    model = classifier()
    optimizer, horizon = adam(model), HorizonOptimizer(model, every=2, penalty=0.1)
    train(model, optimizer, horizon, cut)
    saved = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), horizon.state_dict()], saved)
    saved.seek(0)
    states = torch.load(saved, weights_only=True)

    model = classifier(5)
    optimizer = adam(model)
    horizon = HorizonOptimizer(model, lr=0.7, every=2, penalty=0.1)
    for part, state in zip((model, optimizer, horizon), states, strict=True):
        part.load_state_dict(state)
    assert train(model, optimizer, horizon, 10 - cut, start=cut) == whole
    assert horizon.lr == 0.1
    assert horizon.counts.updates == 5


def test_a_state_of_other_blocks_is_refused():
    one = HorizonOptimizer(classifier())
    two = HorizonOptimizer(nn.ModuleList([classifier(), classifier()]))
    with pytest.raises(ValueError, match="has 2 blocks, but this object has 1"):
        one.load_state_dict(two.state_dict())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_trains_its_own_model_alike(duplicate):
    model = classifier()
    parts = model, adam(model), HorizonOptimizer(model, every=2)
    train(*parts, 3)
    model, optimizer, horizon = duplicate(parts)
    again = train(model, optimizer, horizon, 5, start=3)
    assert again == train(*parts, 5, start=3)
    assert horizon.blocks == [model[1]]


def test_it_says_what_it_is():
    assert repr(HorizonOptimizer(classifier())).startswith("HorizonOptimizer(horizon=1, policy='f")


# -------------------------------------------------------------------------------- with SNOpt


def test_refreshes_integrate_up_to_the_current_horizon():
    model = classifier()
    optimizer = snopt.SNOpt(model, refresh_first=1, refresh_every=1)
    horizon = HorizonOptimizer(model, every=1, penalty=0.1, lr=0.5)
    seen = []
    for i in range(4):
        x, y = batch(i)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        duration = optimizer.recorder.recording.sums.layers["1.field.first"].duration
        assert duration == pytest.approx(model[1].horizon, rel=1e-9)
        seen.append(duration)
        optimizer.step()
        horizon.step()
    assert len(set(seen)) == 4


def test_measuring_leaves_no_trace_in_the_factors():
    factors = []
    for learned in (False, True):
        model = classifier()
        optimizer = snopt.SNOpt(model, refresh_first=1, refresh_every=1)
        horizon = None
        if learned:  # at a rate at which T moves by less than the buffer resolves
            horizon = HorizonOptimizer(model, lr=1e-30, every=1)
        train(model, optimizer, horizon, 2)
        factors.append(optimizer.factors)
    assert horizon.counts.updates == 2
    assert len(factors[0]) == 4
    for name, one in factors[0].items():
        assert torch.equal(one.A, factors[1][name].A)
        assert torch.equal(one.B, factors[1][name].B)
