"""Fields: values, tangents, and parameter counts of the paper's table F-config."""

import pytest
import torch
from torch import nn

from snopt.base.errors import UnknownName
from snopt.models import (
    ConcatSquashField,
    ConcatSquashLinear,
    ConvField,
    HyperField,
    TanhField,
)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("field", "parameters"),
    [
        (ConvField(64), 2 * (65 * 64 * 9 + 64)),
        (TanhField(32), 4 * (32 * 32 + 32)),
        (TanhField(64), 4 * (64 * 64 + 64)),
        # a hypernetwork of Linear(1,32), Linear(32,32), Linear(32,448): 64 w, u, g in 2-d and 64 b
        (HyperField(2), (32 + 32) + (32 * 32 + 32) + 33 * (64 * 3 * 2 + 64)),
        # concat-squash: in · out + out, a gate of 2 · out, a shift of out
        (
            ConcatSquashField(8, (160, 160, 160)),
            8 * 160 + 2 * 160 * 160 + 160 * 8 + 4 * (3 * 160 + 8),
        ),
        (
            ConcatSquashField(43, (860, 860), "softplus"),
            43 * 860 + 860 * 860 + 860 * 43 + 4 * (2 * 860 + 43),
        ),
    ],
    ids=["image", "spoken and character", "articulary", "circle", "gas", "miniboone"],
)
def test_fields_have_the_parameters_that_the_table_implies(field, parameters):
    assert count(field) == parameters


def test_time_enters_both_convolutions_as_a_channel():
    field, x = ConvField(3).double(), torch.randn(2, 3, 5, 5, dtype=torch.float64)
    with torch.no_grad():
        field.first.weight[:, 0].zero_()
    at_zero, at_one = (field(torch.tensor(t), x) for t in (0.0, 1.0))
    added = nn.functional.conv2d(
        torch.ones(2, 1, 5, 5, dtype=torch.float64), field.second.weight[:, :1], padding=1
    )
    assert torch.allclose(at_one - at_zero, added)
    with torch.no_grad():
        field.first.weight[:, 0].fill_(1.0)
        field.second.weight[:, 0].zero_()
    assert not torch.allclose(field(torch.tensor(0.0), x), field(torch.tensor(1.0), x))


def test_a_concat_squash_layer_is_what_its_formula_says():
    layer = ConcatSquashLinear(3, 4).double()
    x, t = torch.randn(5, 3, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    gate = torch.sigmoid(layer.gate.weight[:, 0] * t + layer.gate.bias)
    expected = (x @ layer.linear.weight.T + layer.linear.bias) * gate
    expected = expected + layer.shift.weight[:, 0] * t
    assert torch.allclose(layer(t, x), expected)


def test_a_hypernetwork_field_is_a_mean_of_neurons():
    field = HyperField(2, width=5, hidden=4).double()
    x, t = torch.randn(3, 2, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    out = field.third(torch.tanh(field.second(torch.tanh(field.first(t.reshape(1))))))
    b, (w, u, g) = out[:5], out[5:].reshape(3, 5, 2)
    neurons = [u[i] * torch.sigmoid(g[i]) * torch.tanh(x @ w[i] + b[i])[:, None] for i in range(5)]
    expected = torch.stack(neurons).mean(0)
    assert torch.allclose(field(t, x), expected)
    assert not torch.allclose(field(t, x), field(t + 1.0, x))


FLOW_FIELDS = [
    ConcatSquashField(3, (7, 5), "tanh"),
    ConcatSquashField(3, (7, 5), "softplus"),
    HyperField(3, width=6, hidden=4),
]


@pytest.mark.parametrize("field", FLOW_FIELDS, ids=["tanh", "softplus", "hypernetwork"])
def test_tangents_are_the_derivatives_autograd_finds(field):
    field = field.double()
    t = torch.tensor(0.4, dtype=torch.float64)
    x, v = torch.randn(2, 4, 3, dtype=torch.float64)
    value, tangent = field.with_tangent(t, x, v)
    expected_value, expected = torch.func.jvp(lambda x: field(t, x), (x,), (v,))
    assert torch.allclose(value, expected_value)
    assert torch.allclose(tangent, expected)
    several = field.with_tangent(t, x, torch.stack([v, 2.0 * v]))[1]
    assert torch.allclose(several, torch.stack([tangent, 2.0 * tangent]))


def test_an_unknown_activation_is_refused_by_name():
    with pytest.raises(UnknownName, match="did you mean 'tanh'"):
        ConcatSquashField(2, (4,), "tan")
