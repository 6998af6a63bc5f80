"""A horizon whose best value is known: found, found sooner, found from afar, and overshot."""

import math

import pytest
import torch
from torch import nn

import snopt
from snopt.horizon import HorizonOptimizer
from tests.horizon.problems import DTYPE, Target

SECOND_ORDER = ["feedback", "newton"]


@pytest.mark.parametrize("curvature", ["gradient", "examples", "exact"])
@pytest.mark.parametrize("policy", SECOND_ORDER)
@pytest.mark.parametrize("k", [0.4, -3.0])
def test_the_best_horizon_is_found(policy, curvature, k):
    """Also by a field that runs the other way, for a solve backwards in time."""
    start = math.copysign(0.2, k)
    target = Target(k=k, c=0.05, start=start, policy=policy, curvature=curvature, lr=0.5)
    assert target.run(60)[-1] == pytest.approx(target.best, rel=0.02)


@pytest.mark.parametrize(("curvature", "updates"), [("gradient", 40), ("exact", 20)])
def test_one_learning_rate_serves_all_scales_and_beats_the_gradient(curvature, updates):
    """The baseline at the rate that is best for k = 3 creeps for k = 0.3, where the cost is flat.

    The slope of the cost is (c + k²)(T - T*): a rate of 1 / (c + 9) is Newton's own for k = 3.
    """
    c = 0.01
    for k, start in ((3.0, 1.0), (0.3, 1.0)):
        second = Target(k=k, c=c, start=start, curvature=curvature, lr=0.5)
        second_updates = second.updates_until(0.03 * second.best, most=80)
        assert second_updates <= updates
    first = Target(k=0.3, c=c, start=1.0, policy="gradient", lr=1 / (c + 9.0))
    assert first.updates_until(0.03 * first.best, most=300) > 5 * second_updates


@pytest.mark.parametrize("curvature", ["gradient", "examples", "exact"])
def test_a_horizon_that_starts_far_too_short_recovers(curvature):
    target = Target(k=1.0, c=0.05, start=0.05, curvature=curvature, lr=0.1)
    path = target.run(150)
    assert path[-1] == pytest.approx(target.best, rel=0.03)
    assert min(path) > 0.05
    assert max(path) < 1.3 * target.best


@pytest.mark.parametrize(("curvature", "lr"), [("gradient", 1.0), ("exact", 0.1)])
def test_a_horizon_that_starts_far_too_long_comes_back_without_diverging(curvature, lr):
    target = Target(k=1.0, c=0.05, start=10.0, curvature=curvature, lr=lr)
    path = target.run(120)
    assert path[-1] == pytest.approx(target.best, rel=0.03)
    assert max(path) < 10.0
    assert min(path) > 0.7 * target.best


def test_gradients_as_curvature_make_short_steps_far_away():
    """(Φ_xᵀF)² grows faster than Φ_xᵀF: the step is about lr / Φ_xᵀF, however far it is to go."""
    target = Target(k=1.0, c=0.05, start=10.0, lr=0.1)
    (path,) = target.run(1)
    assert 10.0 - path == pytest.approx(0.1 / 9.0, rel=0.1)


def test_a_growing_batch_finds_the_same_horizon():
    """The mean over equal examples is one of them, whatever the reading."""
    paths = [Target(n=n, curvature="examples", lr=0.3).run(10) for n in (1, 7)]
    assert paths[0] == pytest.approx(paths[1], rel=1e-12)


# ----------------------------------------------------------------------------- overshoot

K, C = 1.0, 0.05
BEST = K / (C + K * K)
#: The paper's curvature at the optimum, where it has all but faded, and the rate it allows.
FADED = C + (K * (K * BEST - 1.0)) ** 2
CRITICAL = 2 * FADED / (C + K * K)


def distance(lr, updates=150, **kwargs):
    """How far from the optimum the iteration is after a while, having started next to it."""
    return abs(Target(K, C, 1.001 * BEST, lr=lr, **kwargs).run(updates)[-1] - BEST) / BEST


def test_the_papers_step_is_stable_below_the_critical_rate_and_overshoots_above():
    assert distance(0.9 * CRITICAL, max_change=None) < 1e-6
    assert distance(1.1 * CRITICAL, max_change=None) > 0.01


def test_the_losss_own_curvature_does_not_overshoot():
    for lr in (1.1 * CRITICAL, 1.0, 1.9):
        assert distance(lr, max_change=None, curvature="exact") < 1e-4


def test_a_bounded_change_holds_an_overshooting_step_near_the_optimum():
    assert distance(1.0, max_change=None) > 0.1
    assert distance(1.0, max_change=0.2) < 0.02


# ----------------------------------------------------------- parameters that move as well


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = nn.Parameter(torch.tensor(0.5, dtype=DTYPE))

    def forward(self, t, x):
        return self.k.expand_as(x)


@pytest.mark.parametrize("every", [1, 5])
def test_horizon_and_parameter_meet_at_their_common_optimum(every):
    """(kT - 1)²/2 + γk²/2 + cT²/2 is least at kT = p = 1 - √(cγ), T² = p √(γ/c)."""
    gamma, c = 0.1, 0.2
    block = snopt.NeuralODE(Scale(), 2.0, method="euler").double()
    optimizer = torch.optim.SGD(block.parameters(), lr=0.2)
    horizon = HorizonOptimizer(block, lr=0.1, penalty=c, every=every)
    x0 = torch.zeros(1, 1, dtype=DTYPE)
    for _ in range(250 * every):
        optimizer.zero_grad()
        loss = 0.5 * (block(x0) - 1.0).square().mean() + 0.5 * gamma * block.field.k**2
        loss.backward()
        optimizer.step()
        horizon.step()
    p = 1 - math.sqrt(c * gamma)
    T = math.sqrt(p * math.sqrt(gamma / c))
    assert block.horizon == pytest.approx(T, rel=0.01)
    assert block.field.k.item() == pytest.approx(p / T, rel=0.01)
