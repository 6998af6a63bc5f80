"""Slopes of minibatches that are mostly noise: updates follow their mean."""

import statistics

import pytest
import torch

import snopt
from snopt.horizon import HorizonOptimizer
from tests.horizon.problems import DTYPE, Drift

MEAN, NOISE, PENALTY = -0.2, 2.0, 0.2


def noisy(start, policy="newton", every=10, seed=0):
    """dx/dt = 1 and a loss whose slope in T is MEAN, with a deviation ten times as large."""
    block = snopt.NeuralODE(Drift(1.0), start, method="euler")
    block.field.k.requires_grad_(False)
    x0 = torch.zeros(1, 1, dtype=DTYPE, requires_grad=True)
    horizon = HorizonOptimizer(block, penalty=PENALTY, every=every, policy=policy)
    generator = torch.Generator().manual_seed(seed)

    def iterate(iterations):
        for _ in range(iterations):
            slope = MEAN + NOISE * torch.randn((), generator=generator, dtype=DTYPE)
            (slope * block(x0)).mean().backward()
            horizon.step()
        return horizon

    return iterate


def test_the_curvature_is_that_of_the_mean_slope():
    """E s² = 4.04; the square of the moving average is MEAN² = 0.04 and its own noise, 4 / 199."""
    horizon = noisy(1.0)(3000)
    curvature = [record.Q_TT - PENALTY for record in horizon.history]
    assert statistics.mean(curvature) == pytest.approx(MEAN**2 + NOISE**2 / 199, rel=0.5)


@pytest.mark.parametrize("start", [0.1, 4.0])
def test_the_horizon_goes_where_the_mean_slope_and_the_penalty_balance(start):
    """c T = -MEAN at T = 1. Divided by E s² the steps would be a twentieth as long."""
    horizons = [noisy(start, seed=seed)(1000).blocks[0].horizon for seed in range(5)]
    assert statistics.mean(horizons) == pytest.approx(1.0, abs=0.25)
