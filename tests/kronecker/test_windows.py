"""Sums over windows equal those over patches that were cut out."""

import pytest
import torch

from snopt.kronecker import windows as module
from snopt.kronecker.windows import Axis, coverage_counts, position_gram, windows

KERNELS = {
    "one pixel": ([Axis(1)], (4,)),
    "line": ([Axis(3)], (9,)),
    "line, apart": ([Axis(3, stride=2, dilation=3)], (20,)),
    "steps with gaps": ([Axis(2, stride=3)], (10,)),
    "plane": ([Axis(3), Axis(2)], (5, 7)),
    "plane, apart": ([Axis(2, stride=2, dilation=2), Axis(3, dilation=2)], (8, 9)),
    "one position": ([Axis(3), Axis(4)], (3, 4)),
    "solid": ([Axis(2, stride=2), Axis(3), Axis(2, dilation=2)], (5, 4, 6)),
}


def case(name):
    axes, pixels = KERNELS[name]
    return axes, torch.randn(2, 3, *pixels, dtype=torch.float64)


def cut(x, axes):
    """im2col: every window as a row of its own."""
    rows = windows(x, axes)
    return rows.reshape(x.shape[0], -1, torch.Size(axis.size for axis in axes).numel())


@pytest.mark.parametrize("tile", [1, 2, 32])
@pytest.mark.parametrize("name", KERNELS)
def test_second_moments_of_the_kernels_entries_are_those_of_cut_patches(name, tile, monkeypatch):
    monkeypatch.setattr(module, "TILE", tile)
    axes, x = case(name)
    rows = cut(x, axes)
    torch.testing.assert_close(position_gram(x, axes), rows.mT @ rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_a_pixel_counts_as_often_as_windows_hold_it(name):
    axes, x = case(name)
    weights = torch.ones((), dtype=x.dtype)
    for axis, length in zip(axes, x.shape[2:], strict=True):
        weights = weights[..., None] * torch.tensor(coverage_counts(axis, length), dtype=x.dtype)
    torch.testing.assert_close((x * weights).sum(), cut(x, axes).sum(), rtol=1e-12, atol=1e-12)


def test_windows_are_views():
    x = torch.zeros(6)
    windows(x, [Axis(3)])[0, 2] = 1
    assert x.tolist() == [0, 0, 1, 0, 0, 0]


def test_an_empty_batch_has_no_second_moments():
    assert not position_gram(torch.zeros(1, 0, 5), [Axis(3)]).any()
