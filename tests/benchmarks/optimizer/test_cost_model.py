"""The cost model: bytes as counted in a run, and limits that can be told by hand."""

import pytest
import torch
from torch import nn

from benchmarks.optimizer.cost_model import (
    Compute,
    Link,
    Machine,
    Sizes,
    eigh_seconds,
    plain_seconds,
    refresh_parts,
    refresh_seconds,
)
from benchmarks.optimizer.scaling_fit import line
from snopt.lab.train import Parts
from snopt.lab.train.parallel import traffic
from snopt.optim import SNOpt

MACHINE = Machine(Link(1e-4, 1e9), Link(2e-4, 2e9), eigh_fixed=1e-4, eigh_cubic=1e-9)
SIZES = Sizes(1000, (((1, 10), (1, 20)), ((2, 30),)))


def test_bytes_are_those_that_a_run_records():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 3))
    optimizer = SNOpt(model)
    model(torch.randn(5, 2, 3, 3)).sum().backward()
    optimizer.step()
    layers = tuple(
        tuple((block.shape[0], block.shape[-1]) for mode in factors.modes for block in mode)
        for factors in optimizer.factors.values()
    )
    sizes = Sizes(sum(p.numel() for p in model.parameters()), layers)
    counted = traffic(Parts(model, optimizer), iterations=1)
    assert sum(sizes.bucket_bytes) == counted["gradients"]
    assert sum(sizes.factor_bytes) + sum(sizes.basis_bytes) == counted["factors"]


def test_one_worker_exchanges_nothing():
    parts = refresh_parts(MACHINE, SIZES, workers=1)
    assert parts["all_reduce"] == parts["broadcast"] == 0
    assert parts["eigh"] == pytest.approx(4e-4 + 1e-9 * (1000 + 8000 + 2 * 27000))
    compute = Compute(0.1, 0.01)
    assert plain_seconds(MACHINE, SIZES, compute, 8, 1) == compute.seconds(8)


def test_compute_is_shared_and_messages_are_not():
    compute, free = Compute(0.0, 1.0), Machine(Link(0, 1e30), Link(0, 1e30), 0.0, 0.0)
    assert refresh_seconds(free, SIZES, compute, 64, 8) == pytest.approx(8.0)
    slow = [sum(refresh_parts(MACHINE, SIZES, p).values()) for p in (2, 8, 64)]
    assert slow == sorted(slow)


def test_decompositions_take_as_long_as_the_largest_at_least():
    blocks = [(1, 300), (1, 10), (1, 10)]
    assert eigh_seconds(MACHINE, blocks, 64) == pytest.approx(MACHINE.eigh(300))


def test_large_models_are_sent_in_buckets():
    assert Sizes(20 * 2**20, ()).bucket_bytes == [
        2**20,
        25 * 2**20,
        25 * 2**20,
        25 * 2**20,
        4 * 2**20,
    ]


def test_a_line_is_found_from_its_points():
    points = {str(n): 3e-4 + 2e-9 * n for n in (4, 4000, 4_000_000)}
    assert line(points) == pytest.approx((3e-4, 2e-9))
