"""Two processes on halves of a batch give what one process gives on the whole."""

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from snopt.optim import SNOpt
from snopt.optim.batching import together
from snopt.optim.parallel import MESSAGE, owners
from tests.optim.problems import image_batch, mixed_model
from tests.processes import both

STEPS = 5
RULES = ("adam", "amortized")


def run(model, optimizer, part):
    for i in range(STEPS):
        x, y = image_batch(8, i)
        x, y = x.double()[part], y[part]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def counted(name, calls):
    """Count the messages that Python sends (DistributedDataParallel's own are not among them)."""
    send = getattr(distributed, name)

    def call(*args, **kwargs):
        calls[name] = calls.get(name, 0) + 1
        return send(*args, **kwargs)

    return call


def work(rank):
    calls = {}
    distributed.all_reduce = counted("all_reduce", calls)
    distributed.broadcast = counted("broadcast", calls)
    found = {}
    for rule in RULES:
        calls.clear()
        found[rule] = trained(rank, rule) | {"calls": dict(calls)}
    return found


def trained(rank, rule):
    inner = mixed_model().double()
    model = DistributedDataParallel(inner)
    optimizer = SNOpt(model, rule=rule, lr=1e-2, refresh_every=2)
    run(model, optimizer, slice(4 * rank, 4 * rank + 4))
    factors = optimizer.factors
    return {
        "parameters": [p.detach() for p in inner.parameters()],
        "A": {name: factors[name].A for name in factors},
        "B": {name: factors[name].B for name in factors},
        "batch_size": optimizer.batch_size,
    }


@pytest.fixture(scope="module")
def ranks():
    """What two processes found."""
    return both(work)


@pytest.mark.parametrize("rule", RULES)
def test_two_processes_equal_one_on_the_joined_batch(rule, ranks):
    first, second = (found[rule] for found in ranks)
    model = mixed_model().double()
    optimizer = SNOpt(model, rule=rule, lr=1e-2, refresh_every=2)
    run(model, optimizer, slice(None))
    # Each step asks whether all are well. A refresh averages the factors of all layers at once, and
    # each of the two sends its bases.
    refreshes = first["calls"]["all_reduce"] - STEPS
    assert 1 < refreshes <= STEPS
    assert first["calls"]["broadcast"] == 2 * refreshes
    assert first["batch_size"] == second["batch_size"] == optimizer.batch_size == 8
    for a, b, p in zip(first["parameters"], second["parameters"], model.parameters(), strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, p.detach(), rtol=1e-6, atol=1e-8)
    for name, factors in optimizer.factors.items():
        torch.testing.assert_close(first["A"][name], factors.A, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(first["B"][name], factors.B, rtol=1e-6, atol=1e-8)


def test_work_is_shared_out_evenly():
    assert sorted(owners([5] * 4, 2)) == [0, 0, 1, 1]
    assert owners([10, 1, 1, 1], 2) == [0, 1, 1, 1]


def test_messages_have_one_kind_and_a_largest_size():
    kinds = ["a", "b", "a", "a", "b"]
    messages = together(kinds, [10 << 20] * 5, MESSAGE)
    assert messages == [[0, 2], [1, 4], [3]]
    assert together(["a", "a"], [100 << 20, 1], MESSAGE) == [[0], [1]]  # larger than any: alone
    assert together([], [], MESSAGE) == []
