"""Layers of one's own; docs/architecture.md has one that is registered, checked and trained."""

import pytest
import torch
from torch import nn

from snopt.kronecker import VIEWS, LayerView, LinearView, check_view, is_covered, register_layer
from snopt.kronecker.registry import view_of
from snopt.optim import SNOpt


class PerHead(nn.Module):
    """A matrix for each head: [batch, heads, in] to [batch, heads, out]."""

    def __init__(self, heads, size):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(heads, size, size, generator=draw) / size)
        self.bias = nn.Parameter(torch.zeros(heads, size))

    def forward(self, x):
        return torch.einsum("bhi,hoi->bho", x, self.weight) + self.bias


class PerHeadView(LayerView):
    def __init__(self, module, *, bias=True):
        self.module, self.bias = module, bias
        self.groups, out, features = module.weight.shape
        self.mode_sizes = (out, features + int(bias))
        self.target_modes = ((0, 1),)

    def inputs(self, z):
        z = torch.cat([z, torch.ones_like(z[..., :1])], -1) if self.bias else z
        return z.transpose(0, 1)[:, :, None]

    def output_gradients(self, g):
        return g.transpose(0, 1)[:, :, None]

    def pack(self, weight, bias):
        return [weight if bias is None else torch.cat([weight, bias[..., None]], dim=-1)]

    def unpack(self, packed):
        return (packed[0][..., :-1], packed[0][..., -1]) if self.bias else (packed[0], None)


def test_without_registration_it_is_left_to_the_fallback():
    assert not is_covered(PerHead(2, 3))
    assert {row.trained_by for row in SNOpt(PerHead(2, 3)).summary().rows} == {"adam"}
    with pytest.raises(TypeError, match=r"PerHead has .*register_layer"):
        view_of(PerHead(2, 3))


def test_the_nearest_class_counts(monkeypatch):
    class Special(nn.Linear):
        pass

    class SpecialView(LinearView):
        pass

    class Derived(Special):
        pass

    assert type(view_of(Derived(2, 2))) is LinearView
    monkeypatch.setitem(VIEWS, Special, SpecialView)
    assert type(view_of(Derived(2, 2))) is SpecialView
    assert type(view_of(nn.Linear(2, 2))) is LinearView


class Exchanged(PerHeadView):
    def output_gradients(self, g):
        return super().output_gradients(g).flip(-1)


class WithoutConstant(PerHeadView):
    def inputs(self, z):
        return z.transpose(0, 1)[:, :, None]


class Lossy(PerHeadView):
    def unpack(self, packed):
        return packed[0][..., :-1].flip(0), packed[0][..., -1]


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (Exchanged, "differs from autograd's gradient by"),
        (WithoutConstant, r"shape \[2, 3, 3\], but pack returns \[2, 3, 4\]"),
        (Lossy, "unpack does not undo pack"),
    ],
)
def test_a_wrong_view_is_found(monkeypatch, view, message):
    monkeypatch.setitem(VIEWS, PerHead, view)
    with pytest.raises(ValueError, match=f"the view of PerHead: .*{message}"):
        check_view(PerHead(2, 3), torch.randn(5, 2, 3))


def test_only_classes_of_modules_are_registered(monkeypatch):
    with pytest.raises(TypeError, match="not a class of modules"):
        register_layer(PerHead(2, 3), PerHeadView)
    with pytest.raises(TypeError, match="not a class of modules"):
        register_layer(torch.Tensor, PerHeadView)
