"""Divergences: exact, estimated, by tangents and by autograd."""

import pytest
import torch
from torch import nn

from snopt.base.errors import UnknownName
from snopt.models import ConcatSquashField, HyperField, draw_noise, estimated, exact

T = torch.tensor(0.3, dtype=torch.float64)


class Plain(nn.Module):
    """A field without tangents of its own."""

    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, t, x):
        return self.field(t, x)


def fields():
    torch.manual_seed(1)
    made = [ConcatSquashField(3, (8,)), ConcatSquashField(3, (8,), "softplus"), HyperField(3)]
    return [field.double() for field in made]


@pytest.mark.parametrize("field", fields(), ids=["tanh", "softplus", "hypernetwork"])
@pytest.mark.parametrize("wrap", [lambda field: field, Plain], ids=["tangents", "autograd"])
def test_exact_is_the_trace_and_the_norm_of_the_jacobian(field, wrap):
    x = torch.randn(4, 3, dtype=torch.float64)
    found = exact(wrap(field), T, x)
    jacobians = torch.stack(
        [torch.autograd.functional.jacobian(lambda x: field(T, x[None])[0], row) for row in x]
    )
    assert torch.allclose(found.value, field(T, x))
    assert torch.allclose(found.divergence, jacobians.diagonal(dim1=1, dim2=2).sum(1))
    assert torch.allclose(found.square, jacobians.square().sum((1, 2)))


@pytest.mark.parametrize("kind", ["rademacher", "gaussian"])
@pytest.mark.parametrize("wrap", [lambda field: field, Plain], ids=["tangents", "autograd"])
def test_estimates_agree_with_exact_values_in_expectation(kind, wrap):
    field, draws = fields()[0], 20000
    x = torch.randn(1, 3, dtype=torch.float64)
    truth = exact(field, T, x)
    many = x.expand(draws, 3)
    with torch.no_grad():
        found = estimated(wrap(field), T, many, draw_noise(kind, many))
    for name in ("divergence", "square"):
        values, expected = getattr(found, name), getattr(truth, name)
        error = values.std() / draws**0.5
        assert 0 < error < 0.05
        assert abs(values.mean() - expected) < 4 * error


def test_the_divergence_of_images_is_estimated_sample_by_sample():
    x = torch.randn(2, 3, 4, 4)
    noise = draw_noise("rademacher", x)
    found = estimated(lambda t, x: 2.0 * x, T, x, noise)
    assert torch.allclose(found.divergence, torch.full((2,), 2.0 * 48))
    assert torch.allclose(found.square, torch.full((2,), 4.0 * 48))


@pytest.mark.parametrize("wrap", [lambda field: field, Plain], ids=["tangents", "autograd"])
def test_divergences_can_be_differentiated(wrap):
    field = fields()[0]
    wrapped = wrap(field)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(2, 3, dtype=torch.float64)

    def both(x, weight):
        swapped = {"layers.0.linear.weight": weight}
        moved = lambda t, x: torch.func.functional_call(field, swapped, (t, x))  # noqa: E731
        return exact(moved, T, x).divergence, estimated(moved, T, x, noise).divergence

    weight = field.layers[0].linear.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(both, (x, weight))
    reference = torch.autograd.grad(both(x, weight)[1].sum(), [x, weight])
    own = [x, field.layers[0].linear.weight]
    found = torch.autograd.grad(estimated(wrapped, T, x, noise).divergence.sum(), own)
    assert all(torch.allclose(a, b) for a, b in zip(found, reference, strict=True))


def test_without_gradients_nothing_is_left_on_a_tape():
    with torch.no_grad():
        found = exact(Plain(fields()[0]), T, torch.randn(2, 3, dtype=torch.float64))
    assert not any(part.requires_grad for part in found)


def test_a_constant_field_has_no_divergence():
    found = exact(lambda t, x: x.detach() * 0 + x * 0, T, torch.randn(2, 3))
    assert torch.equal(found.divergence, torch.zeros(2))


def test_noise_can_be_drawn_again_from_its_generator():
    x = torch.zeros(3, 4)
    for kind in ("rademacher", "gaussian"):
        first, second = (draw_noise(kind, x, torch.Generator().manual_seed(5)) for _ in range(2))
        assert torch.equal(first, second)
    assert set(draw_noise("rademacher", torch.zeros(100, 4)).unique().tolist()) == {-1.0, 1.0}


def test_unknown_noise_is_refused_by_name():
    with pytest.raises(UnknownName, match="did you mean 'gaussian'"):
        draw_noise("gausian", torch.zeros(1, 1))
