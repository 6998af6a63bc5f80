"""``SNOpt.eval`` and ``train``: averaged weights for evaluation, weights for gradients."""

import copy

import pytest
import torch
from torch import nn

import snopt
from snopt.optim.averaging import share_and_lr


def trained(steps=30, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = snopt.SNOpt(model, lr=0.05, **settings)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    x = torch.randn(16, 3, dtype=torch.float64)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()


def values(model):
    return [p.detach().clone() for p in model.parameters()]


def test_eval_shows_the_weighted_average_of_the_fast_sequence():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = snopt.SNOpt(model, lr=0.05)
    state, averages = {}, None
    for _ in range(30):
        step(model, optimizer)
        share, _ = share_and_lr(state, 0.05)
        fast = [optimizer.state[p]["fast"].clone() for p in model.parameters()]
        averages = fast if averages is None else [
            (1 - share) * x + share * z for x, z in zip(averages, fast, strict=True)
        ]  # fmt: skip
    optimizer.eval()
    for found, expected in zip(values(model), averages, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_train_restores_the_weights_bit_for_bit():
    model, optimizer = trained()
    before = values(model)
    optimizer.eval()
    optimizer.eval()
    assert not all(map(torch.equal, before, values(model)))
    optimizer.train()
    optimizer.train()
    assert all(map(torch.equal, before, values(model)))


def test_evaluations_do_not_change_the_training():
    plain, _ = trained(40)
    model, optimizer = trained(30)
    for _ in range(10):
        optimizer.eval()
        optimizer.train()
        step(model, optimizer)
    assert all(map(torch.equal, values(plain), values(model)))


def test_a_step_with_averaged_weights_is_refused():
    model, optimizer = trained()
    optimizer.eval()
    with pytest.raises(RuntimeError, match=r"optimizer\.train\(\)"):
        step(model, optimizer)


def test_a_state_saved_between_eval_and_train_restores_the_training():
    model, optimizer = trained()
    expected = values(model)
    optimizer.eval()
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    other, resumed = trained(0)
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    resumed.train()
    assert all(map(torch.equal, expected, values(other)))


@pytest.mark.parametrize("settings", [{"rule": "amortized"}, {"momentum": 0.0}])
def test_without_an_average_nothing_changes(settings):
    model, optimizer = trained(**settings)
    before = values(model)
    optimizer.eval()
    assert all(map(torch.equal, before, values(model)))
    step(model, optimizer)


def test_a_rollback_returns_to_the_weights_for_training():
    model, optimizer = trained(on_divergence="rollback")
    optimizer.eval()
    assert optimizer.rollback()
    step(model, optimizer)
