"""Moving averages, the parameters' latest change, and what is left out."""

import pytest
import torch

from snopt.horizon.averages import DECAY, Averages

CPU = torch.device("cpu")


def test_one_iteration_is_the_formula_as_printed():
    averages = Averages()
    Q_u, change = [torch.tensor([1.0, 2.0])], [torch.tensor([0.5, -1.0])]
    assert averages.add(0.3, 0.1, Q_u, change)
    means = averages.take(1.0, CPU)
    assert (means.horizon, means.slope, means.running, means.along) == (1.0, 0.3, 0.1, -1.5)


def test_averages_are_exponential_and_without_bias():
    """Weights 1 - DECAY, DECAY (1 - DECAY), ... from the latest back, divided by their sum."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    gradients = torch.randn(300, 4, generator=generator, dtype=torch.float64)
    change = torch.randn(4, generator=generator, dtype=torch.float64)
    averages = Averages()
    for n in range(1, 301):
        averages.add(*values[n - 1].tolist(), [gradients[n - 1]], [change])
        if n in (1, 2, 50, 300):
            weights = DECAY ** torch.arange(n - 1, -1, -1, dtype=torch.float64)
            weights /= weights.sum()
            slope, running = (weights @ values[:n]).tolist()
            means = averages.take(1.0, CPU)
            assert means.slope == pytest.approx(slope, rel=1e-9)
            assert means.running == pytest.approx(running, rel=1e-9)
            along = float(weights @ gradients[:n] @ change)
            assert means.along == pytest.approx(along, rel=1e-9)


def test_averages_go_on_from_one_update_to_the_next():
    averages = Averages()
    averages.add(1.0)
    averages.take(1.0, CPU)
    averages.add(0.0)
    assert averages.take(1.0, CPU).slope == pytest.approx(DECAY / (1 + DECAY))


def test_only_the_latest_change_of_the_parameters_counts():
    averages, part = Averages(), torch.ones(2)
    averages.add(1.0, 0.0, [part], [100 * part])
    averages.add(1.0, 0.0, [part], [part])
    assert averages.take(1.0, CPU).along == pytest.approx(2.0)
    averages.miss()
    averages.fresh = 1
    assert averages.take(1.0, CPU).along == 0.0


def test_gradients_that_are_overwritten_afterwards_do_no_harm():
    averages, grad, change = Averages(), torch.ones(2), [torch.ones(2)]
    averages.add(1.0, 0.0, [grad], change)
    grad.zero_()
    averages.add(1.0, 0.0, [grad], change)
    assert averages.take(1.0, CPU).along == pytest.approx(2 * DECAY / (1 + DECAY))


def test_an_iteration_that_is_not_finite_is_left_out_whole():
    averages, part = Averages(), torch.ones(2)
    averages.add(1.0, 0.0, [part], [part])
    before = averages.weight, averages.slope, averages.running, averages.Q_u
    for bad in (float("nan"), float("inf")):
        assert not averages.add(bad, 0.0, [part], [part])
        assert not averages.add(1.0, bad, [part], [part])
        assert not averages.add(1.0, 0.0, [part * bad], [part])
        assert not averages.add(1.0, 0.0, [part], [part * bad])
    assert (averages.weight, averages.slope, averages.running, averages.Q_u) == before
    assert averages.fresh == 1


def test_old_measurements_alone_give_no_update():
    averages = Averages()
    assert averages.take(1.0, CPU) is None
    averages.add(1.0)
    assert averages.take(1.0, CPU) is not None
    averages.miss()
    assert averages.take(1.0, CPU) is None
