"""Rules against hand-written recurrences."""

import copy

import pytest
import torch
from torch import nn

import snopt
from snopt.optim.averaging import averaged_step_, move_, share_and_lr
from snopt.optim.rules import adam, amortized


def test_adam_scales_by_a_growing_memory_and_clips_its_mean_square():
    v, second = torch.zeros(3, dtype=torch.float64), [0.0] * 3
    for step in range(1, 8):
        X = torch.randn(3, dtype=torch.float64) * step**3  # gradients that grow are clipped
        (direction,), (v,) = adam([X], [v], step=step, decay=0.7, damping=1e-3)
        beta = min(0.7, 1 - step**-0.8)
        expected = []
        for i in range(3):
            second[i] = beta * second[i] + (1 - beta) * float(X[i]) ** 2
            expected.append(float(X[i]) / (second[i] ** 0.5 + 1e-3))
        size = (sum(e * e for e in expected) / 3) ** 0.5
        assert step == 1 or size > 1
        want = torch.tensor([e / max(1.0, size) for e in expected], dtype=torch.float64)
        torch.testing.assert_close(direction, want)


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


def test_amortized_follows_the_two_lines_of_algorithm_2():
    S = torch.zeros(3)
    second = [0.0] * 3
    for _ in range(4):
        X = torch.randn(3)
        direction, S = amortized(X, S, decay=0.75, damping=0.05, batch_size=8, weight_decay=0.1)
        for i in range(3):
            second[i] = 0.75 * second[i] + 0.25 * 8 * float(X[i]) ** 2
            expected = float(X[i]) / (second[i] + 0.15)
            assert abs(float(direction[i]) - expected) < 1e-4 * abs(expected)


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
    expected = -0.5 * weight * (plain.abs() + rate * (kernel**0.5 - 1))
    longer = (decayed - plain)[towards_zero]
    torch.testing.assert_close(longer, expected[towards_zero], rtol=1e-3, atol=1e-7)
    assert torch.equal(decayed_bias, plain_bias)


def test_decay_of_convolutions_does_not_vanish_with_the_step_and_fades():
    def shrunk(shape, count):
        """Return how far step ``count`` moves a weight, over its rate times decay and weight."""
        weight = torch.full(shape, 2.0)
        state = {"fast": weight.clone(), "count": count - 1}
        move_([weight], [state], [torch.full(shape, 1e-12)], 0.1, 0.0, 0.5)
        return float((2 - weight).mean()) / (0.1 * 0.5 * 2)

    assert shrunk((1, 1), 300) == 0
    assert shrunk((1, 1, 3, 3), 300) == pytest.approx(2, rel=1e-4)
    assert shrunk((1, 1, 3, 3), 1200) == pytest.approx(0.5, rel=1e-4)
