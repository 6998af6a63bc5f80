"""Factors of a layer against the table of ``snopt.kronecker.factors``, as explicit sums."""

from itertools import accumulate, pairwise

import pytest
import torch
from torch import nn

from snopt.kronecker import ConvView, LinearView
from snopt.kronecker.factors import (
    FEWEST,
    FactorSums,
    block_sizes,
    call_factors,
    finished,
    sampled_factors,
)

CALLS = {
    "rows": (LinearView(nn.Linear(3, 2)), (5, 3), (5, 2)),
    "positions": (LinearView(nn.Linear(3, 2, bias=False)), (5, 4, 3), (5, 4, 2)),
    "convolution": (ConvView(nn.Conv2d(4, 6, 3, groups=2)), (5, 4, 6, 5), (5, 6, 4, 3)),
}


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("sharing", ["expand", "trace"])
@pytest.mark.parametrize("name", CALLS)
def test_factors_are_those_of_the_table(name, sharing, batches):
    view, inputs, outputs = CALLS[name]
    z, g = (torch.randn(*shape, dtype=torch.float64) for shape in (inputs, outputs))
    sums = FactorSums()
    for _ in range(batches):  # the same batch again and again, its gradient divided by their number
        assert sums.add(call_factors(view, z, g / batches, sharing=sharing), weight=0.7)
    found = finished(sums, calls=batches, b_scale=2.0, sharing=sharing)
    x, y = view.inputs(z), view.output_gradients(g)
    N, S = y.shape[1:3]
    if sharing == "expand":
        A = torch.einsum("gnsi,gnsj->gij", x, x) / N
        B = torch.einsum("gnsi,gnsj->gij", y, y) * N / S
    else:
        A = torch.einsum("gnsi,gnsj,gns->gij", x, x, y.square().sum(-1))
        B = torch.einsum("gnsi,gnsj,gns->gij", y, y, x.square().sum(-1)) * N
    if sharing == "trace":  # its scale is in B
        A = A / A.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None] / 0.7
    torch.testing.assert_close(found.modes[1][0], 0.7 * A)
    torch.testing.assert_close(found.modes[0][0], 0.7 * 2.0 * B)


@pytest.mark.parametrize("form", ["kfc", "per_axis"])
def test_blocks_are_cut_from_the_diagonal(form):
    view = ConvView(nn.Conv2d(4, 6, 2, groups=2, bias=False), form=form)
    z, g = torch.randn(5, 4, 4, 5), torch.randn(5, 6, 3, 4)
    sizes = [block_sizes(n, 2) for n in view.mode_sizes]
    for blocks, (whole,) in zip(
        call_factors(view, z, g, sizes=sizes), call_factors(view, z, g), strict=True
    ):
        starts = accumulate([0, *(block.shape[-1] for block in blocks)])
        for block, (a, b) in zip(blocks, pairwise(starts), strict=True):
            torch.testing.assert_close(block, whole[:, a:b, a:b])
        assert b == whole.shape[-1]


def test_the_sample_shrinks_with_the_number_of_rows_of_all_calls():
    """A layer called many times needs fewer examples of each call."""
    torch.manual_seed(0)
    view = ConvView(nn.Conv1d(2, 3, 1))
    z, g = torch.randn(64, 2, 6), torch.randn(64, 3, 6)
    for rows, every in ((0.0, 4), (800.0, 8), (1e9, 64 // FEWEST)):
        found = sampled_factors(view, z, g, sample=32, turn=3, rows=rows)
        B, A = call_factors(view, z[3 % every :: every], g[3 % every :: every])
        torch.testing.assert_close(found, [[every**2 * B[0]], A])


def test_zero_inputs_have_a_zero_factor():
    view = LinearView(nn.Linear(3, 2, bias=False))
    sums = FactorSums(call_factors(view, torch.zeros(4, 3), torch.ones(4, 2), sharing="trace"))
    found = finished(sums, calls=1, b_scale=1.0, sharing="trace")
    assert torch.equal(found.A, torch.zeros(3, 3))


def test_half_precision_is_summed_in_single_precision():
    """4,096 ones and more cannot be counted in bfloat16 one by one."""
    view = LinearView(nn.Linear(1, 1).bfloat16())
    z = g = torch.ones(3001, 1, dtype=torch.bfloat16)
    B, A = call_factors(view, z, g)
    assert A[0].dtype == B[0].dtype == torch.float32
    assert (A[0] == 1).all()
    assert B[0].item() == 3001**2


def test_a_call_that_is_not_finite_is_left_out():
    sums, good = FactorSums(), [[torch.ones(1, 1, 1)], [torch.ones(1, 2, 2)]]
    bad = [[torch.ones(1, 1, 1)], [torch.full((1, 2, 2), torch.nan)]]
    assert [sums.add(call, weight=0.5) for call in (bad, good, bad, good)] == [0, 1, 0, 1]
    assert all((mode[0] == 1).all() for mode in sums.modes)
