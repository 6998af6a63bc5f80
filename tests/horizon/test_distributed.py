"""Two processes on halves of a batch learn the horizon that one learns on the whole."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import snopt
from snopt.horizon import HorizonOptimizer
from tests.problems import TanhField
from tests.processes import both

EVERY = 3


def make():
    torch.manual_seed(0)
    block = snopt.NeuralODE(TanhField(), rtol=1e-8, atol=1e-8)
    return nn.Sequential(block, nn.Linear(3, 4)).double()


def run(model, part, silent=()):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    horizon = HorizonOptimizer(model, every=EVERY, penalty=0.1)
    for i in range(2 * EVERY):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(8, 3, generator=generator, dtype=torch.float64)
        x, y = x[part], x.argmax(1)[part]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if i in silent:
            horizon._learners[0].listener.collect()  # as if no gradient had reached the block
        horizon.step()
    return [list(record) for record in horizon.history]


def work(rank):
    part = slice(4 * rank, 4 * rank + 4)
    # One rank has nothing to say in one iteration: all of them still agree.
    silent = [1] if rank else []
    return {
        "heard": run(DistributedDataParallel(make()), part),
        "silent": run(DistributedDataParallel(make()), part, silent),
    }


@pytest.fixture(scope="module")
def ranks():
    """What two processes found."""
    return both(work)


def test_two_processes_equal_one_on_the_joined_batch(ranks):
    """Slopes of the ranks differ, and their mean is squared, not the other way round."""
    whole = run(make(), slice(None))
    assert ranks[0]["heard"] == ranks[1]["heard"]
    assert len(whole) == 2
    for one, joined in zip(whole, ranks[0]["heard"], strict=True):
        assert joined == pytest.approx(one, rel=1e-5)


def test_ranks_agree_when_one_of_them_measured_less(ranks):
    assert ranks[0]["silent"] == ranks[1]["silent"]
    assert len(ranks[0]["silent"]) == 2
    assert ranks[0]["silent"] != ranks[0]["heard"]
