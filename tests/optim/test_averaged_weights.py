"""``SNOpt.eval`` and ``train``: averaged weights for evaluation, weights for gradients."""

import copy

import pytest
import torch
from torch import nn

import snopt
from snopt.optim.averaging import share_and_lr
from tests.optim.problems import cloned as values

LR = 0.05


def trained(steps=30, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = snopt.SNOpt(model, lr=LR, **settings)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model, optimizer):
    x = torch.randn(16, 3, dtype=torch.float64)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()


def test_eval_shows_the_weighted_average_of_the_fast_sequence():
    model, optimizer = trained(0)
    averages, state, beta = values(model), {}, 0.9
    for _ in range(30):
        step(model, optimizer)
        c, _ = share_and_lr(state, LR)
        for i, y in enumerate(values(model)):
            # y = (1 - β) z + β x, with x = (1 - c) x_before + c z.
            before = (1 - c) * averages[i]
            averages[i] = before + c * (y - beta * before) / (1 - beta + beta * c)
    optimizer.eval()
    torch.testing.assert_close(values(model), averages, rtol=1e-9, atol=1e-11)


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


def test_after_a_rollback_warm_up_and_average_start_anew():
    model, optimizer = trained(on_divergence="rollback")
    assert optimizer.rollback()
    start = values(model)
    optimizer.eval()
    torch.testing.assert_close(values(model), start)
    optimizer.train()
    step(model, optimizer)
    after = values(model)
    moved = sum((a - b).square().sum() for a, b in zip(after, start, strict=True)) ** 0.5
    # A direction has an RMS of one at most, and the first rate is a twentieth.
    assert 0 < moved <= 1.001 * LR / 20 * sum(p.numel() for p in start) ** 0.5
    optimizer.eval()
    torch.testing.assert_close(values(model), after)  # the average of one step is that step


def test_a_rollback_returns_to_the_weights_for_training():
    model, optimizer = trained(on_divergence="rollback")
    optimizer.eval()
    assert optimizer.rollback()
    step(model, optimizer)
