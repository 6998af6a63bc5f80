import dataclasses

import pytest
import torch

from snopt.base.errors import UnknownName
from snopt.lab.data import Batch, Dataset, Spec, Splits

SPEC = Spec("s", "series", (5, 2), 3, 5, "generated", "Nothing.")


def dataset(count: int = 7) -> Dataset:
    x = torch.arange(count * 10.0).reshape(count, 5, 2)
    lengths = torch.arange(count) % 5 + 1
    return Dataset(Batch(x, torch.arange(count), lengths, torch.arange(5.0), x > 3), SPEC)


def test_spec_refuses_words_it_does_not_know():
    with pytest.raises(UnknownName, match=r"unknown kind 'picture'.*image, series, table"):
        dataclasses.replace(SPEC, kind="picture")
    with pytest.raises(UnknownName, match="stand-in"):
        dataclasses.replace(SPEC, completeness="standin")


def test_batch_of_indices_takes_every_row_but_not_the_times():
    data = dataset()
    batch = data.batch([4, 0, 4])
    for name in ("x", "y", "lengths", "mask"):
        assert getattr(batch, name).equal(getattr(data.tensors, name)[[4, 0, 4]])
    assert batch.times is data.tensors.times
    assert len(batch) == 3


def test_index_gives_a_batch_of_one():
    assert dataset()[2].y.tolist() == [2]
    assert dataset()[-1].y.tolist() == [6]
    with pytest.raises(IndexError):
        dataset()[7]


def test_slices_are_those_of_a_list():
    data, numbers = dataset(), list(range(7))
    for part in (slice(2, 5), slice(None, None, 3), slice(None, None, -1), slice(-2, None)):
        assert data[part].y.tolist() == numbers[part]


def test_iterating_ends():
    assert [len(batch) for batch in dataset()] == [1] * 7


def test_batches_without_generator_are_in_order_and_not_copied():
    data = dataset()
    batches = list(data.batches(3))
    assert [b.y.tolist() for b in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert batches[0].x.data_ptr() == data.tensors.x.data_ptr()


def test_batches_with_generator_are_a_reproducible_permutation():
    def once(seed):
        batches = dataset(20).batches(6, generator=torch.Generator().manual_seed(seed))
        return [y for b in batches for y in b.y.tolist()]

    assert sorted(once(1)) == list(range(20))
    assert once(1) == once(1) != once(2)


@pytest.mark.parametrize("generator", [None, torch.Generator()])
def test_last_batch_can_be_dropped(generator):
    sizes = [len(b) for b in dataset().batches(3, generator=generator, drop_last=True)]
    assert sizes == [3, 3]


def test_batch_size_must_be_positive():
    with pytest.raises(ValueError, match="batch_size=0"):
        next(dataset().batches(0))


def test_take_gives_the_first_and_no_more_than_there_are():
    assert dataset().take(2).tensors.y.tolist() == [0, 1]
    assert len(dataset().take(99)) == 7
    assert len(dataset().take(0)) == 0


def test_everything_moves_to_a_device():
    splits = Splits(dataset(), dataset(), dataset(), SPEC).to("meta")
    batch = splits.valid.tensors
    for name in ("x", "y", "lengths", "times", "mask"):
        assert getattr(batch, name).device.type == "meta"


def test_what_a_batch_does_not_have_stays_away():
    batch = Batch(torch.zeros(3, 2)).select(torch.tensor([1])).to("cpu")
    assert (batch.y, batch.lengths, batch.times, batch.mask) == (None,) * 4
    assert repr(batch) == "Batch(x=[1, 2])"


def test_joined_examples_keep_what_each_had():
    series = {"lengths": torch.tensor([3]), "times": torch.arange(3.0)}
    first = Batch(torch.zeros(1, 3, 2), torch.tensor([4]), **series)
    second = Batch(torch.ones(1, 3, 2), torch.tensor([5]), **series)
    whole = first.joined(second)
    assert (whole.y.tolist(), whole.lengths.tolist()) == ([4, 5], [3, 3])
    assert torch.equal(whole.times, first.times)
    assert whole.mask is None
    gaps = torch.zeros(1, 3, 2, dtype=torch.bool)
    masked = first.joined(dataclasses.replace(second, mask=gaps)).mask
    assert masked.flatten(1).all(1).tolist() == [True, False]
