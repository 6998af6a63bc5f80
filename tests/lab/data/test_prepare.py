from dataclasses import replace
from pathlib import Path

import pytest
import torch

from snopt.lab.data.prepare import (
    column_statistics,
    hold_out,
    hold_out_groups,
    image_splits,
    pixel_statistics,
    series_splits,
    table_splits,
)
from snopt.lab.data.sources import Form, Found
from snopt.lab.data.spec import Batch, Splits

NAN = float("nan")
FOUND = Found("x", Path(), Form((), "whole", "A test."))


@pytest.mark.parametrize("labels", [None, torch.arange(103) % 4])
def test_held_out_rows_and_kept_rows_make_up_all(labels):
    kept, held = hold_out(103, 0.25, labels)
    assert sorted(torch.cat([kept, held]).tolist()) == list(range(103))
    assert len(held) == 26
    assert kept.tolist() != sorted(kept.tolist())


def test_every_class_gives_its_share_to_within_one_row():
    labels = torch.tensor([0] * 200 + [1] * 31 + [2] * 9 + [3] * 1)[torch.randperm(241)]
    _, held = hold_out(241, 0.1, labels)
    shares = labels[held].bincount(minlength=4) - 0.1 * labels.bincount()
    assert len(held) == 24
    assert shares.abs().max() < 1


def test_groups_are_not_torn_apart():
    groups = torch.arange(60) % 12
    kept, held = hold_out_groups(groups, 0.25)
    assert not set(groups[kept].tolist()) & set(groups[held].tolist())
    assert len(groups[held].unique()) == 3
    assert len(kept) + len(held) == 60


def test_pixel_statistics_are_those_of_the_pixels():
    x = torch.randint(0, 256, (20, 3, 4, 5), dtype=torch.uint8)
    mean, sd = pixel_statistics(x)
    pixels = x.double().movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(mean.double(), pixels.mean(0))
    torch.testing.assert_close(sd.double(), pixels.std(0, unbiased=False))


def images(count: int) -> Batch:
    return Batch(
        torch.randint(0, 256, (count, 1, 3, 3), dtype=torch.uint8), torch.arange(count) % 4
    )


def split_images(train: Batch, test: Batch, preprocessing: str = "standard") -> Splits:
    return image_splits(FOUND, train, test, preprocessing)


def test_a_constant_picture_does_not_divide_by_zero():
    black = replace(images(40), x=torch.zeros(40, 1, 3, 3, dtype=torch.uint8))
    assert split_images(black, images(8)).train.tensors.x.eq(0).all()


def test_images_as_in_the_paper_have_the_scale_of_mnist():
    test = images(8)
    x = split_images(images(40), test, "paper").test.tensors.x
    wanted = (test.x.float() / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(x.sort(0).values, wanted.sort(0).values)


def series(count: int, longest: int = 6, *, missing: bool = False) -> Batch:
    x = torch.randn(count, longest, 2) * 3 + 1
    lengths = torch.arange(count) % (longest - 1) + 2
    x[torch.arange(longest) >= lengths[:, None]] = NAN
    if missing:
        x[:, 1, 0] = NAN
    return Batch(x, torch.arange(count) % 4, lengths)


def split_series(
    train: Batch, test: Batch, preprocessing: str = "standard", groups: torch.Tensor | None = None
) -> Splits:
    return series_splits(FOUND, train, test, 4, preprocessing, groups)


def test_series_of_both_parts_get_one_length():
    splits = split_series(series(40, 6), series(8, 9))
    assert splits.spec.shape == (9, 2)
    assert splits.spec.longest == 9
    assert splits.train.tensors.x.shape == (36, 9, 2)
    assert splits.test.tensors.times.tolist() == list(range(9))


def test_a_mask_is_there_when_something_is_missing():
    whole = split_series(series(40), series(8))
    assert whole.train.tensors.mask is None
    batch = split_series(series(40, missing=True), series(8)).train.tensors
    within = torch.arange(6) < batch.lengths[:, None]
    assert not batch.mask[:, 1, 0].any()
    assert batch.mask[..., 1].equal(within)
    assert (batch.x[~batch.mask] == 0).all()
    values = batch.x[..., 0][batch.mask[..., 0]]
    torch.testing.assert_close(values.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)


def test_validation_series_are_of_other_speakers():
    splits = split_series(series(40), series(8), groups=torch.arange(40) // 10)
    assert (len(splits.train), len(splits.valid)) == (30, 10)


def test_series_as_in_the_paper_have_intervals_marks_and_values():
    train, test = series(80), series(20, 9)
    splits = split_series(train, test, "paper")
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (70, 15, 15)
    batch = splits.train.tensors
    assert splits.spec.shape == (9, 5)
    assert batch.x[3, :, 0].tolist() == [0.0] + 8 * [1.0]
    assert batch.x[3, :, 1].tolist() == 9 * [1.0]
    # The last value goes on, and counts in mean and deviation.
    for row, length in zip(batch.x, batch.lengths, strict=True):
        assert row[length:, 3:].equal(row[length - 1, 3:].expand(9 - length, 2))
    values = batch.x[..., 3:].flatten(0, 1)
    torch.testing.assert_close(values.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(values.std(0), torch.ones(2), atol=2e-3, rtol=0)


def test_tables_are_scaled_alike():
    train, valid, test = torch.randn(9, 2), torch.randn(4, 2), torch.randn(5, 2)
    spec = FOUND.spec("table", (2,), "standard")
    splits = table_splits(spec, train, valid, test, (torch.tensor(1.0), torch.tensor(2.0)))
    for data, rows in ((splits.train, train), (splits.valid, valid), (splits.test, test)):
        got = data.tensors.x.sort(0).values
        torch.testing.assert_close(got, ((rows - 1) / 2).sort(0).values)


def test_column_statistics_leave_out_what_is_missing():
    rows = torch.tensor([[1.0, 5.0], [3.0, NAN], [NAN, 5.0]])
    mean, sd = column_statistics(rows)
    assert mean.tolist() == [2.0, 5.0]
    assert sd.tolist() == [1.0, 1.0]  # a constant column is divided by one
