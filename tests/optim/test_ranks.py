"""Processes decide together, and a lost one is an error, not a wait."""

import os
import time
import warnings

import pytest
import torch
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import snopt
from snopt.optim import SNOpt, all_ranks_ok, parallel
from tests.optim.problems import euler_model
from tests.processes import both, free_port, join


def batch(seed, part=slice(None)):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, dtype=torch.float64, generator=generator)[part]


def outcome(model, optimizer):
    return {
        "parameters": [p.detach() for p in model.parameters()],
        "counts": optimizer.counts.as_dict(),
        "batch_size": optimizer.batch_size,
    }


def a_loss_that_is_nan_on_one_rank(rank):
    """Without DistributedDataParallel gradients stay finite and equal; only one rank knows."""
    model = euler_model()
    optimizer = SNOpt(model, refresh_first=1, refresh_every=1)
    for i in range(4):

        def closure(i=i):
            optimizer.zero_grad()
            loss = model(batch(i)).square().mean()
            loss.backward()
            return loss * (torch.nan if i == 1 and rank == 1 else 1.0)

        optimizer.step(closure)
    return outcome(model, optimizer)


def a_gradient_that_is_nan_on_one_rank(rank):
    model = euler_model()
    optimizer = SNOpt(model, refresh_first=1, refresh_every=1, on_divergence="rollback")
    for i in range(4):
        optimizer.zero_grad()
        model(batch(i)).square().mean().backward()
        if i == 2 and rank == 0:
            model[1].weight.grad[0, 0] = torch.inf
        optimizer.step()
    return outcome(model, optimizer)


class Failing(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.fails = inner, False

    def forward(self, x):
        if self.fails:
            raise snopt.SolveError("the solve failed", t=0.5, step=0.1, norm=1.0)
        return self.inner(x)


def a_solve_that_fails_on_one_rank(rank):
    inner = Failing(euler_model())
    model = DistributedDataParallel(inner)
    optimizer = SNOpt(model, refresh_first=1, refresh_every=2)
    used = 0
    for i in range(5):
        inner.fails = rank == 0 and i in (1, 3)
        optimizer.zero_grad()
        try:
            loss, ok = model(batch(i, slice(4 * rank, 4 * rank + 4))).square().mean(), True
        except snopt.SolveError:
            ok = False
        if not all_ranks_ok(ok):
            optimizer.rollback()
            continue
        loss.backward()
        optimizer.step()
        used += 1
    assert used == 3
    return outcome(inner, optimizer)


def batches_of_unequal_size_and_number(rank):
    inner = euler_model()
    model = DistributedDataParallel(inner)
    optimizer = SNOpt(model, refresh_first=1, refresh_every=2)
    mine = [batch(i, slice(0, 3) if rank == 0 else slice(3, 8)) for i in range(4 + rank)]
    batches = iter(mine)
    while True:
        x = next(batches, None)
        if not all_ranks_ok(x is not None):
            break
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return outcome(inner, optimizer)


class Repeated(nn.Module):
    """Several solves; how many depends on the batch."""

    def __init__(self):
        super().__init__()
        self.inner = euler_model(steps=1)

    def forward(self, x):
        for _ in range(20 + len(x)):
            x = self.inner[0](0.7 * x)
        return self.inner[1](x)


def solves_of_unequal_number(rank):
    inner = Repeated()
    model = DistributedDataParallel(inner)
    optimizer = SNOpt(model, refresh_first=1, refresh_every=1)
    for i in range(3):
        optimizer.zero_grad()
        model(batch(i, slice(0, 3) if rank == 0 else slice(3, 8))).square().mean().backward()
        optimizer.step()
    assert optimizer.seen.solves == {"inner.0.field.first": 23 if rank == 0 else 25}
    return outcome(inner, optimizer)


def a_decomposition_that_fails_on_one_rank(rank):
    model = euler_model()
    optimizer = SNOpt(model, refresh_first=1, refresh_every=1)
    decompose = parallel.each_eigh
    for i in range(3):
        if rank == 0 and i == 1:
            parallel.each_eigh = lambda matrices: [None] * len(matrices)
        optimizer.zero_grad()
        model(batch(i)).square().mean().backward()
        optimizer.step()
        parallel.each_eigh = decompose
    return outcome(model, optimizer)


SCENES = [
    a_decomposition_that_fails_on_one_rank,
    a_loss_that_is_nan_on_one_rank,
    a_gradient_that_is_nan_on_one_rank,
    a_solve_that_fails_on_one_rank,
    batches_of_unequal_size_and_number,
    solves_of_unequal_number,
]


def work(rank):
    found = {}
    for scene in SCENES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found[scene.__name__] = scene(rank)
        found[scene.__name__]["warnings"] = [str(w.message) for w in caught]
    return found


@pytest.fixture(scope="module")
def ranks():
    """What two processes found."""
    return both(work)


EXPECTED = {
    "a_decomposition_that_fails_on_one_rank": {"iterations": 3, "skipped": 0, "eigh_failures": 2},
    "a_loss_that_is_nan_on_one_rank": {"iterations": 4, "skipped": 1, "refreshes": 3},
    "a_gradient_that_is_nan_on_one_rank": {"iterations": 4, "skipped": 1, "rollbacks": 1},
    "a_solve_that_fails_on_one_rank": {"iterations": 3, "skipped": 0},
    "batches_of_unequal_size_and_number": {"iterations": 4, "skipped": 0},
    "solves_of_unequal_number": {"iterations": 3, "refreshes": 3},
}


@pytest.mark.parametrize("scene", EXPECTED)
def test_ranks_decide_together_and_stay_equal(ranks, scene):
    first, second = (found[scene] for found in ranks)
    for a, b in zip(first["parameters"], second["parameters"], strict=True):
        assert torch.equal(a, b)
    assert first["counts"] == second["counts"]
    assert first["batch_size"] == second["batch_size"]
    assert EXPECTED[scene].items() <= first["counts"].items()
    if first["counts"]["skipped"]:
        for found in (first, second):
            assert any("on this or another process" in text for text in found["warnings"])


def test_unequal_batches_count_all_examples(ranks):
    assert ranks[0]["batches_of_unequal_size_and_number"]["batch_size"] == 8


def lose(rank, port, way, results):
    join(rank, port, 4)
    model = euler_model()
    optimizer = SNOpt(model, refresh_first=1, refresh_every=1)
    for i in range(4):
        if rank == 1 and i == 2:
            if way == "killed":
                os._exit(1)
            time.sleep(15)
            os._exit(1)
        optimizer.zero_grad()
        model(batch(i)).square().mean().backward()
        begin = time.monotonic()
        try:
            optimizer.step()
        except RuntimeError as error:
            results.append((str(error), time.monotonic() - begin))
            os._exit(0)


@pytest.mark.parametrize("way", ["killed", "absent"])
def test_a_lost_process_is_a_clear_error_and_no_hang(way):
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.list()
        port = free_port()
        workers = [context.Process(target=lose, args=(r, port, way, results)) for r in range(2)]
        for worker in workers:
            worker.start()
        workers[0].join(90)
        alive = workers[0].is_alive()
        for worker in workers:
            worker.kill()
        assert not alive
        ((message, seconds),) = list(results)
    assert "rank 0 could not decide with the other processes" in message
    assert "check the output of the other processes" in message
    assert seconds < 12


def test_without_a_process_group_the_answer_is_ones_own():
    assert all_ranks_ok(True)
    assert not all_ranks_ok(False)
