"""Every view reproduces autograd's weight gradient as Σ g zᵀ, and its forms agree."""

import pytest
import torch
from torch import nn

from snopt.kronecker import ConvView, LinearView, conv, is_covered, view_of

CONVS = {
    "plain": (nn.Conv2d, {"kernel_size": 3}, (5, 6)),
    "stride": (nn.Conv2d, {"kernel_size": 3, "stride": 2}, (7, 6)),
    "padding": (nn.Conv2d, {"kernel_size": (3, 2), "padding": (2, 1)}, (5, 6)),
    "same": (nn.Conv2d, {"kernel_size": 4, "padding": "same"}, (5, 6)),
    "reflect": (nn.Conv2d, {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"}, (5, 6)),
    "circular": (nn.Conv2d, {"kernel_size": 3, "padding": 1, "padding_mode": "circular"}, (5, 6)),
    "replicate": (nn.Conv2d, {"kernel_size": 3, "padding": 2, "padding_mode": "replicate"}, (5, 6)),
    "dilation": (nn.Conv2d, {"kernel_size": 3, "dilation": (2, 1), "stride": (1, 2)}, (7, 6)),
    "groups": (nn.Conv2d, {"kernel_size": 3, "groups": 2, "padding": 1}, (5, 6)),
    "depthwise": (nn.Conv2d, {"kernel_size": 3, "groups": 4}, (5, 6)),
    "no bias": (nn.Conv2d, {"kernel_size": 3, "groups": 2, "bias": False}, (5, 6)),
    "one dimension": (
        nn.Conv1d,
        {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2},
        (9,),
    ),
    "three dimensions": (nn.Conv3d, {"kernel_size": (2, 3, 1), "padding": (0, 1, 1)}, (4, 4, 3)),
}


def conv_case(name):
    kind, options, size = CONVS[name]
    module = kind(4, 8, **options).double()
    return module, torch.randn(3, 4, *size, dtype=torch.float64)


def run(module, z):
    """Input, output gradient and parameter gradients of one call with a random loss."""
    out = module(z)
    g = torch.randn_like(out)
    grads = torch.autograd.grad(out, list(module.parameters()), g)
    weight, bias = grads if len(grads) == 2 else (grads[0], None)
    return g, weight, bias


@pytest.mark.parametrize("name", CONVS)
def test_patches_times_output_gradients_are_the_convolution_gradient(name):
    module, z = conv_case(name)
    view = ConvView(module)
    g, weight, bias = run(module, z)
    rows = torch.einsum("gbso,gbsi->goi", view.output_gradients(g), view.inputs(z))
    torch.testing.assert_close(rows, view.pack(weight, bias)[0])
    assert rows.shape[1:] == view.mode_sizes


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("form", ["kfc", "per_axis"])
def test_packing_is_undone_by_unpacking(name, form):
    module, z = conv_case(name)
    view = ConvView(module, form=form)
    _, weight, bias = run(module, z)
    packed = view.pack(weight, bias)
    for tensor, modes in zip(packed, view.target_modes, strict=True):
        assert tensor.shape == (view.groups, *(view.mode_sizes[m] for m in modes))
    again = view.unpack(packed)
    assert torch.equal(again[0], weight)
    assert (again[1] is None) == (bias is None)
    if bias is not None:
        assert torch.equal(again[1], bias)


@pytest.mark.parametrize("name", ["groups", "same", "one dimension"])
def test_patches_in_parts_are_the_patches(name, monkeypatch):
    module, z = conv_case(name)
    view = ConvView(module)
    whole = view.inputs(z)
    monkeypatch.setattr(conv, "PART", 2 * whole[:, :1].numel())
    parts = list(view.inputs_in_parts(z))
    assert [part.shape[1] for part in parts] == [2, 1]
    assert torch.equal(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("lead", [(), (5,), (5, 3), (5, 2, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers_take_any_leading_dimensions(lead, bias):
    module = nn.Linear(4, 3, bias=bias).double()
    view = LinearView(module)
    z = torch.randn(*lead, 4, dtype=torch.float64)
    g, weight, grad_bias = run(module, z)
    rows = view.inputs(z)
    assert rows.shape[1] == (lead[0] if lead else 1)
    product = torch.einsum("gbso,gbsi->goi", view.output_gradients(g), rows)
    torch.testing.assert_close(product, view.pack(weight, grad_bias)[0])


def test_a_convolution_of_one_example_has_a_batch_of_one():
    module, z = conv_case("groups")
    view = ConvView(module)
    g, weight, bias = run(module, z[0])
    rows = torch.einsum("gbso,gbsi->goi", view.output_gradients(g), view.inputs(z[0]))
    torch.testing.assert_close(rows, view.pack(weight, bias)[0])


def test_a_bias_can_be_left_out_of_the_view():
    view = view_of(nn.Linear(4, 3), bias=False)
    assert view.mode_sizes == (3, 4)
    assert len(view.parameters) == 1


@pytest.mark.parametrize(
    "computed",
    [
        nn.utils.parametrizations.orthogonal,
        lambda layer: nn.utils.parametrizations.weight_norm(layer, dim=1),
        lambda layer: nn.utils.parametrizations.spectral_norm(
            nn.utils.parametrizations.weight_norm(layer)
        ),
    ],
)
def test_layers_with_weights_computed_in_other_ways_are_not_covered(computed):
    assert not is_covered(computed(nn.Linear(2, 2)))


def test_asking_for_the_view_of_another_layer_says_what_to_do():
    with pytest.raises(TypeError, match=r"GRUCell .* fallback"):
        view_of(nn.GRUCell(2, 2))
    with pytest.raises(TypeError, match=r"LayerNorm .* fallback"):
        view_of(nn.LayerNorm(2))
