"""One bad entry is found anywhere, and nothing else is."""

import math

import pytest
import torch

from snopt.base.finite import all_finite

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_entry_is_found_wherever_it_is(dtype, bad):
    for size in (1, 7, 64, 1001):
        for place in {0, size // 2, size - 1}:
            x = torch.randn(size).to(dtype)
            assert all_finite([x, torch.ones(2)])
            x[place] = bad
            assert not all_finite([torch.ones(2), x])
            assert not all_finite([x.expand(2, size).mT])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_finite_numbers_are_finite(dtype):
    largest = torch.finfo(dtype).max
    x = torch.full((100,), largest, dtype=torch.float64).to(dtype)
    assert all_finite([x, -x, torch.ones(3, dtype=torch.float16)])


def test_an_imaginary_part_counts():
    assert not all_finite([torch.tensor([1.0 + 1j * math.inf])])


def test_empty_tensors_and_whole_numbers_are_finite():
    assert all_finite([])
    assert all_finite([torch.ones(0), torch.tensor(3)])
    assert all_finite([torch.ones(2, requires_grad=True)])


def test_other_devices_are_asked_for_one_norm_each():
    """On the meta device the norm is computed and no number can be read."""
    with pytest.raises(RuntimeError, match="meta"):
        all_finite([torch.ones(2, device="meta"), torch.ones(2, device="meta").long()])
