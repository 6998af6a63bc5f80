"""Slopes of minibatches that are mostly noise: updates follow their mean."""

import pytest
import torch

import snopt
from snopt.horizon import HorizonOptimizer
from tests.horizon.problems import DTYPE, Drift

MEAN, NOISE, PENALTY = -0.2, 2.0, 0.2


def learn(start, policy, iterations):
    """dx/dt = 1 and a loss whose slope in T is MEAN + NOISE and MEAN - NOISE in turn."""
    block = snopt.NeuralODE(Drift(1.0), start, method="euler")
    x0 = torch.zeros(1, 1, dtype=DTYPE)
    horizon = HorizonOptimizer(block, penalty=PENALTY, every=5, policy=policy)
    for i in range(iterations):
        slope = MEAN + (-1) ** i * NOISE
        (slope * block(x0)).mean().backward()
        horizon.step()
        block.zero_grad()
    return horizon.history


@pytest.mark.parametrize("policy", ["feedback", "newton"])
@pytest.mark.parametrize("start", [0.1, 4.0])
def test_the_mean_slope_leads_and_not_the_noise(start, policy):
    """c T = -MEAN at T = 1. E s² = 4.04 would make steps of a seventeenth."""
    history = learn(start, policy, iterations=400)
    assert history[-1].horizon == pytest.approx(1.0, rel=0.1)
    assert pytest.approx(PENALTY + MEAN**2, rel=0.05) == history[-1].Q_TT
