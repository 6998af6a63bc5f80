import pytest
import torch

from snopt.lab.train.order import Order


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
