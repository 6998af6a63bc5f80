"""Details of rules; tests/fuzz/test_updates.py writes out whole updates."""

import copy

import pytest
import torch
from torch import nn

import snopt
from snopt.optim.averaging import averaged_step_, move_, share_and_lr
from snopt.optim.eigenbasis import rotate
from snopt.optim.rules import amortized, tikhonov


def test_the_averaged_step_is_that_of_its_three_sequences():
    """x, the average, is stored nowhere, and y is what is left."""
    y = torch.randn(4, dtype=torch.float64)
    z, fast, x, beta, state = y.clone(), y.clone(), y.clone(), 0.8, {}
    rates = [0.1, 0.2, 0.2, 0.05]
    for k, lr in enumerate(rates):
        d = torch.randn(4, dtype=torch.float64)
        share, lr = share_and_lr(state, lr)
        warm = [rate * (i + 1) / 20 for i, rate in enumerate(rates[: k + 1])]
        assert lr == pytest.approx(warm[-1])
        weights = [((i + 1) * max(warm[: i + 1])) ** 2 for i in range(k + 1)]
        assert share == pytest.approx(weights[-1] / sum(weights))
        averaged_step_([y], [z], [d], lr=lr, momentum=beta, share=share)
        fast = fast - lr * d
        x = (1 - share) * x + share * fast
        torch.testing.assert_close(z, fast)
        torch.testing.assert_close(y, (1 - beta) * fast + beta * x)


@pytest.mark.parametrize(
    ("make", "shape", "kernel"),
    [
        (lambda: nn.Linear(3, 4), (5, 3), 1),
        (lambda: nn.Conv1d(3, 4, 5), (5, 3, 6), 5),
        (lambda: nn.Conv2d(4, 6, (2, 3), groups=2), (5, 4, 4, 4), 6),
    ],
)
def test_weight_decay_acts_only_where_the_step_goes_towards_zero(make, shape, kernel):
    torch.manual_seed(0)
    model = make()
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    x = torch.randn(shape)
    moved = []
    for weight_decay in (0.0, 0.5):
        trained = copy.deepcopy(model)
        optimizer = snopt.SNOpt(trained, lr=0.1, weight_decay=weight_decay)
        (trained(x) - 1).square().mean().backward()
        optimizer.step()
        moved.append((trained.weight.detach() - weight, trained.bias.detach() - bias))
    (plain, plain_bias), (decayed, decayed_bias) = moved
    towards_zero = plain * weight < 0
    assert 0 < towards_zero.sum() < weight.numel()
    assert torch.equal(decayed[~towards_zero], plain[~towards_zero])
    rate = 0.1 / 20  # the first step of the warm-up
    expected = -rate * 0.5 * kernel**0.5 * weight[towards_zero]
    torch.testing.assert_close((decayed - plain)[towards_zero], expected, rtol=1e-3, atol=1e-8)
    assert torch.equal(decayed_bias, plain_bias)


def test_weight_decay_shrinks_weights_without_a_gradient_worth_mentioning_and_fades():
    def shrunk(count):
        """Return by how much of its rate a weight moves in this step."""
        weight = torch.full((1, 1), 2.0)
        state = {"fast": weight.clone(), "count": count - 1}
        move_([weight], [state], [torch.full((1, 1), 1e-12)], 0.1, 0.0, 0.5)
        return float(2 - weight) / (0.1 * 0.5 * 2)

    assert shrunk(300) == pytest.approx(1, rel=1e-4)
    assert shrunk(1200) == pytest.approx(0.25, rel=1e-4)


def test_a_wrong_number_of_bases_is_named():
    with pytest.raises(ValueError, match=r"1 mode bases for a tensor of shape \(1, 2, 3\)"):
        rotate(torch.zeros(1, 2, 3), [[]])


def test_negative_eigenvalues_from_rounding_count_as_zero():
    values = [torch.tensor([[-0.5, 2.0]]), torch.tensor([[-0.5, 1.0]])]
    found = tikhonov(torch.ones(1, 2, 2), values, damping=0.5)
    torch.testing.assert_close(found, torch.tensor([[[2.0, 2.0], [2.0, 0.4]]]))


def test_amortized_does_not_write_to_its_state():
    S = torch.zeros(3)
    amortized(torch.ones(3), S, decay=0.5, damping=0.1)
    assert torch.equal(S, torch.zeros(3))
