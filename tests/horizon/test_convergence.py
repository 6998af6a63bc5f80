"""A horizon whose best value is known: found, found sooner, found from afar, and overshot."""

import math

import pytest
import torch
from torch import nn

import snopt
from snopt.horizon import HorizonOptimizer
from snopt.horizon.averages import DECAY
from tests.horizon.problems import DTYPE, Target


@pytest.mark.parametrize("policy", ["feedback", "newton"])
@pytest.mark.parametrize("k", [0.4, -3.0])
def test_the_best_horizon_is_found(policy, k):
    """Also by a field that runs the other way, for a solve backwards in time."""
    start = math.copysign(0.2, k)
    target = Target(k=k, c=0.05, start=start, policy=policy, lr=0.5)
    assert target.run(150)[-1] == pytest.approx(target.best, rel=0.02)


def test_one_learning_rate_serves_all_scales_and_beats_the_gradient():
    """The baseline at the rate that is best for k = 3 creeps for k = 0.3, where the cost is flat.

    The slope of the cost is (c + k²)(T - T*): a rate of 1 / (c + 9) is Newton's own for k = 3.
    """
    c = 0.05
    for k in (3.0, 0.3):
        second = Target(k=k, c=c, start=1.0, lr=0.5)
        second_updates = second.updates_until(0.03 * second.best, most=150)
        assert second_updates <= 110
    first = Target(k=0.3, c=c, start=1.0, policy="gradient", lr=1 / (c + 9.0))
    assert first.updates_until(0.03 * first.best, most=150) > 5 * second_updates


def test_a_horizon_that_starts_far_too_short_recovers():
    target = Target(k=1.0, c=0.05, start=0.05, every=20, lr=0.1)
    path = target.run(1200)
    assert path[-1] == pytest.approx(target.best, rel=0.03)
    assert min(path) > 0.05
    assert max(path) < 2 * target.best


def test_the_squared_slope_makes_short_steps_far_away():
    """(Φ_xᵀF)² grows faster than Φ_xᵀF: the step is about lr / Φ_xᵀF, however far it is to go."""
    target = Target(k=1.0, c=0.05, start=10.0, lr=0.1)
    (path,) = target.run(1)
    assert 10.0 - path == pytest.approx(0.1 / 9.0, rel=0.1)


# ----------------------------------------------------------------------------- overshoot

K, C, EVERY = 1.0, 0.05, 10
BEST = K / (C + K * K)
#: The paper's curvature at the optimum, where the slope has all but faded.
FADED = C + (K * (K * BEST - 1.0)) ** 2
#: What an update leaves of the averages before it, and the rate up to which T settles.
KEPT = DECAY**EVERY
CRITICAL = 2 * FADED / (C + K * K * (1 - KEPT) / (1 + KEPT))


def distance(lr, updates=80):
    """How far from the optimum the iteration is after a while, having started next to it."""
    target = Target(K, C, 1.001 * BEST, lr=lr, every=EVERY, max_change=None)
    return max(abs(T - BEST) / BEST for T in target.run(EVERY * updates)[-10:])


def test_the_step_is_stable_below_the_critical_rate_and_overshoots_above():
    assert distance(0.9 * CRITICAL) < 1e-4
    assert distance(1.15 * CRITICAL) > 0.01


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
