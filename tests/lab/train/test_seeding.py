import io
import random

import numpy as np
import pytest
import torch

from snopt.lab.train.seeding import Order, isolated, rng_state, seed_all, set_rng_state


def draw():
    return torch.rand(2).tolist(), float(np.random.rand()), random.random()


def test_state_survives_a_file_that_is_loaded_with_weights_only():
    np.random.randn()  # leaves half of a pair of normal numbers behind
    file = io.BytesIO()
    torch.save(rng_state(), file)
    expected = draw(), np.random.randn()
    file.seek(0)
    set_rng_state(torch.load(file, weights_only=True))
    assert (draw(), np.random.randn()) == expected


def test_seed_and_purpose_decide_all_generators():
    seed_all(0, "weights")
    first = draw()
    seed_all(0, "weights")
    assert draw() == first
    seed_all(0, "training")
    assert all(a != b for a, b in zip(first, draw(), strict=True))


def test_isolated_numbers_are_the_same_every_time_and_leave_no_trace():
    seed_all(0)
    before = draw()
    with isolated(0, "evaluation"):
        inside = draw()
    after = draw()
    seed_all(0)
    assert draw() == before
    with isolated(0, "evaluation"):
        assert draw() == inside
    assert draw() == after


def test_batches_of_an_epoch_are_disjoint_and_of_one_size():
    order = Order(examples=103, batch_size=10, seed=0)
    batches = [order.indices(i) for i in range(10)]
    assert {len(batch) for batch in batches} == {10}
    assert len(torch.cat(batches).unique()) == 100


def test_order_depends_on_seed_and_epoch_and_not_on_what_was_asked_before():
    order = Order(50, 10, seed=0)
    late = order.indices(23)
    assert torch.equal(late, Order(50, 10, seed=0).indices(23))
    torch.rand(3)
    assert torch.equal(order.indices(0), Order(50, 10, seed=0).indices(0))
    assert not torch.equal(order.indices(0), order.indices(5))
    assert not torch.equal(order.indices(0), Order(50, 10, seed=1).indices(0))


def test_fewer_examples_than_a_batch_are_one_batch():
    order = Order(examples=7, batch_size=10, seed=0)
    assert order.per_epoch == 1
    assert sorted(order.indices(3).tolist()) == list(range(7))


def test_processes_share_out_a_small_set_equally():
    parts = [Order(examples=7, batch_size=10, seed=0, rank=r, ranks=2) for r in range(2)]
    shares = [part.indices(0) for part in parts]
    assert [len(share) for share in shares] == [3, 3]
    assert len(torch.cat(shares).unique()) == 6


@pytest.mark.parametrize(
    ("examples", "batch_size", "ranks", "said"),
    [(0, 4, 1, "no training examples"), (9, 5, 2, "a multiple of 2"), (1, 2, 2, "too few")],
)
def test_impossible_shares_are_refused(examples, batch_size, ranks, said):
    with pytest.raises(ValueError, match=said):
        Order(examples, batch_size, seed=0, ranks=ranks)
