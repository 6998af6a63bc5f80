"""Factors from a part of the solves and nodes."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

import snopt
from snopt.kronecker.sampling import FEWEST_NODES, FEWEST_SOLVES, Share
from tests.kronecker.recorded import recorder_of
from tests.optim.problems import Field, same_parameters

SOLVES, STAGES = FEWEST_NODES + 5, FEWEST_NODES + 6


class Series(nn.Module):
    """Solves between readings; `stages` Euler steps in each."""

    def __init__(self, solves, stages, functional=False):
        super().__init__()
        self.solves, self.functional, self.observer = solves, functional, None
        self.field = Field()
        self.settings = {"method": "euler", "options": {"step_size": 1.0 / stages}}
        if not functional:
            self.block = snopt.NeuralODE(self.field, 1.0, **self.settings)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        for i in range(self.solves):
            x = 0.7 * x + 0.1 * (i % 5)
            if self.functional:
                observer = self.observer() if self.observer else None
                x = snopt.odeint(self.field, x, [0.0, 1.0], observer=observer, **self.settings)[-1]
            else:
                x = self.block(x)
        return self.head(x)


def series(solves=SOLVES, stages=1, functional=False):
    torch.manual_seed(0)
    return Series(solves, stages, functional).double()


def batch(seed=0):
    return torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def recorded(model, recorder, turn, seeds=(0,)):
    """The recording of one iteration, with a backward pass for each batch."""
    recording = recorder.arm(seed=turn)
    if model.functional:
        model.observer = lambda: recorder.observer(model.field)
    model.zero_grad()
    for seed in seeds:
        model(batch(seed)).square().mean().backward()
    recorder.disarm()
    return recording


def sums_of(recording):
    return {
        name: [*(block for mode in sums.modes for block in mode), torch.tensor(sums.duration)]
        for name, sums in recording.sums.layers.items()
    }


@pytest.mark.parametrize(("taken", "of"), [(3, 7), (8, 92), (5, 5), (9, 4), (1, 6)])
def test_in_all_turns_each_item_is_taken_equally_often(taken, of):
    share = Share(taken, of)
    chosen = [[i for i in range(of) if share.takes(i, turn)] for turn in range(of)]
    assert all(len(items) == min(taken, of) for items in chosen)
    for item in range(of):
        assert share.weight * sum(item in items for items in chosen) == pytest.approx(of)
    gaps = [b - a for items in chosen for a, b in pairwise(items)]
    assert not gaps or max(gaps) <= -(-of // taken) + 1
    if of > 8 * taken:  # the next turn is not of their neighbours, which are similar
        assert min(abs(a - b) for a in chosen[0] for b in chosen[1]) > 0.3 * of / taken


@pytest.mark.parametrize("passes", [(0,), (0, 1)], ids=len)
@pytest.mark.parametrize(
    "model", [series(), series(2, STAGES // 2), series(2, STAGES // 2, functional=True)],
    ids=["solves", "nodes", "functional"],
)  # fmt: skip
def test_the_mean_over_all_turns_is_the_factor_of_the_whole_path(model, passes):
    whole = sums_of(recorded(model, recorder_of(model), 0, passes))
    recorder = recorder_of(model)
    first = recorded(model, recorder, 0, passes)
    for name, expected in whole.items():
        assert all(map(torch.equal, sums_of(first)[name], expected))
    recorder.seen = first.seen
    turns = first.seen.solves["field.first"] or STAGES
    turns = turns if turns > FEWEST_SOLVES else STAGES
    recordings = [recorded(model, recorder, turn, passes) for turn in range(turns)]
    for counts in ("solves", "nodes", "rows"):  # extrapolated to the whole path
        assert getattr(recordings[1].seen, counts) == pytest.approx(getattr(first.seen, counts))
    parts = [sums_of(recording) for recording in recordings]
    for name in ("field.first", "field.last"):
        for i, expected in enumerate(whole[name]):
            if i < 2:
                assert not torch.allclose(parts[0][name][i], expected, rtol=1e-3)
            mean = sum(part[name][i] for part in parts) / turns
            torch.testing.assert_close(mean, expected, rtol=1e-6, atol=0.0)


def test_every_backward_pass_uses_the_same_nodes():
    model = series(3, 7)
    recorder = recorder_of(model)
    recorder.seen = recorded(model, recorder, 0).seen
    model.solves = 4  # 28 nodes a pass, of which the sample expects 21
    recordings = [recorded(model, recorder, 1, seeds) for seeds in ((0,), (0, 0))]
    assert recordings[0].seen.nodes == recordings[1].seen.nodes == {"field.first": 28}
    once, twice = map(sums_of, recordings)
    for name, sums in once.items():
        torch.testing.assert_close(twice[name], [2 * total for total in sums])


def test_a_solve_that_is_left_out_is_not_observed():
    model = series(stages=2)
    recorder = recorder_of(model)
    recorder.seen = recorded(model, recorder, 0).seen
    observed, evaluations = [], []
    recorder.arm(seed=1)
    model.block.register_forward_pre_hook(lambda block, _: observed.append(block.observer))
    handle = model.field.register_forward_hook(lambda *_: evaluations.append(1))
    loss = model(batch()).square().mean()
    assert [o is not None for o in observed].count(True) == FEWEST_SOLVES
    evaluations.clear()
    loss.backward()
    recorder.disarm()
    with_nodes = len(evaluations)
    loss = model(batch()).square().mean()
    evaluations.clear()
    loss.backward()
    handle.remove()
    # Two Euler steps have two nodes, at each of which the field is evaluated once more.
    assert with_nodes - len(evaluations) == 2 * FEWEST_SOLVES
    assert model.block.observer is None


def test_evaluation_between_the_passes_takes_no_turns():
    model = series()
    recorder = recorder_of(model)
    recording = recorder.arm()
    with torch.no_grad():
        model(batch())
    model(batch()).square().mean().backward()
    assert recording.seen.solves == {"field.first": SOLVES}
    recorder.disarm()


def test_without_sampling_every_solve_is_observed_at_every_refresh():
    model = series()
    options = snopt.KroneckerOptions(sample=None)
    recorder = recorder_of(model, options)
    first = recorded(model, recorder, 0)
    recorder.seen = first.seen
    second = recorded(model, recorder, 1)
    assert not first.paths
    assert not first.seen.nodes
    for name, expected in sums_of(first).items():
        assert all(map(torch.equal, sums_of(second)[name], expected))


def trained(optimizer, model, steps, start=0):
    for i in range(start, start + steps):
        optimizer.zero_grad()
        model(batch(i)).square().mean().backward()
        optimizer.step()


def dense_refreshes(model):
    return snopt.SNOpt(model, refresh_first=1, refresh_every=1)


def test_a_restored_run_and_a_copy_take_the_same_solves():
    model = series()
    optimizer = dense_refreshes(model)
    trained(optimizer, model, 2)
    twin = copy.deepcopy(model)
    other = dense_refreshes(twin)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    pair, copied = copy.deepcopy((model, optimizer))
    for m, o in ((model, optimizer), (twin, other), (pair, copied)):
        trained(o, m, 2, start=2)
    assert same_parameters(model, twin)
    assert same_parameters(model, pair)
    assert optimizer.seen.solves == {"field.first": SOLVES}


def test_two_blocks_are_sampled_each_by_itself():
    model = nn.Sequential(series().block, snopt.NeuralODE(Field().double(), 1.0), nn.Linear(3, 2))
    model.double()
    optimizer = dense_refreshes(model)
    for _ in range(3):
        optimizer.zero_grad()
        x = batch()
        for _ in range(SOLVES):
            x = model[0](x)
        model[2](model[1](x)).square().mean().backward()
        optimizer.step()
    assert optimizer.seen.solves == {"0.field.first": SOLVES, "1.field.first": 1}
