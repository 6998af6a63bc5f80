"""Factors from a part of the rows."""

import pytest
import torch
from torch import nn

import snopt
from snopt.kronecker import LinearView
from snopt.kronecker.conv import ConvView
from snopt.kronecker.factors import FEWEST, call_factors, sampled_factors


def conv_call(batch: int = 64):
    torch.manual_seed(0)
    view = ConvView(nn.Conv2d(2, 3, 3, padding=1))
    return view, torch.randn(batch, 2, 8, 8), torch.randn(batch, 3, 8, 8) / batch


@pytest.mark.parametrize("sharing", ["expand", "trace"])
def test_samples_of_all_turns_together_are_the_whole_batch(sharing):
    view, z, g = conv_call()
    whole = call_factors(view, z, g, sharing=sharing)
    # 64 · 64 rows, 19 features: 2 rows per feature would be less than FEWEST examples.
    turns = 64 // FEWEST
    parts = [
        sampled_factors(view, z, g, sample=2, turn=turn, sharing=sharing) for turn in range(turns)
    ]
    assert not torch.allclose(parts[0][0][0], whole[0][0], rtol=1e-2)
    B = sum(part[0][0] for part in parts) / turns
    torch.testing.assert_close(B, whole[0][0])
    A = sum(part[1][0] for part in parts)
    trace, whole_trace = (M.diagonal(dim1=-2, dim2=-1).sum() for M in (A, whole[1][0]))
    torch.testing.assert_close(A / trace, whole[1][0] / whole_trace)
    if sharing == "expand":
        torch.testing.assert_close(A / turns, whole[1][0])


@pytest.mark.parametrize("shape", [(4096,), (8, 7)])
def test_few_rows_are_all_used(shape):
    torch.manual_seed(0)
    # Many examples of one position each, or few positions of a few examples.
    view = LinearView(nn.Linear(5, 4))
    z, g = torch.randn(*shape, 5), torch.randn(*shape, 4)
    found = sampled_factors(view, z, g, sample=8, turn=3)
    expected = call_factors(view, z, g)
    for mode, other in zip(found, expected, strict=True):
        assert torch.equal(mode[0], other[0])


def test_refreshes_take_turns_and_none_uses_every_example():
    def factor(sample, steps):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))
        x = torch.randn(128, 1, 8, 8)
        options = snopt.KroneckerOptions(sample=sample, averaging=0.0)
        optimizer = snopt.SNOpt(model, lr=0.0, refresh_first=1, refresh_every=1, curvature=options)
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return optimizer.factors["0"].A

    assert torch.equal(factor(None, 1), factor(None, 2))
    assert not torch.equal(factor(8, 1), factor(8, 2))
    whole = factor(None, 1)
    assert (factor(8, 1) - whole).norm() < 0.3 * whole.norm()


def test_a_sample_of_no_rows_is_refused():
    with pytest.raises(ValueError, match="sample=0"):
        snopt.KroneckerOptions(sample=0)
