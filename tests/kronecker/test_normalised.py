"""Normalised layers have the factors of the plain layer, through the normalisation."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import snopt
from snopt.kronecker import view_of
from snopt.optim import SNOpt
from tests.kronecker.recorded import factors_after
from tests.problems import descend

LAYERS = {
    "linear": (lambda: nn.Linear(3, 4), (6, 3)),
    "conv": (lambda: nn.Conv2d(2, 4, 3, padding=1, groups=2), (6, 2, 4, 4)),
}
NORMS = {"weight": weight_norm, "spectral": spectral_norm}


def plain_twin(layer, make):
    """The layer with the weight that the normalised one has now, and no bias to cover."""
    twin = make().double()
    twin.load_state_dict({"weight": layer.eval().weight.detach(), "bias": layer.bias.detach()})
    layer.train()
    return twin


def factors(layer, x):
    loss = lambda: torch.tanh(layer(x)).square().mean()  # noqa: E731
    return factors_after(layer, loss)["model"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_factors_are_those_of_the_plain_layer_times_the_scale(kind, norm, scale):
    torch.manual_seed(0)
    make, shape = LAYERS[kind]
    layer = make().double()
    rows = torch.linspace(1, scale, 4, dtype=torch.float64)
    layer.weight.data *= 2
    layer = NORMS[norm](layer)
    if norm == "weight":
        original = layer.parametrizations.weight.original0
        original.data *= rows.view(original.shape)
        s = rows
    else:
        layer.eval()  # no power iteration, so that σ is that of the buffers
        s = layer.weight.norm() / layer.parametrizations.weight.original.norm() * torch.ones(4)
    twin = plain_twin(layer, make)
    layer.train(norm == "weight")
    twin.bias.requires_grad_(False)
    x = torch.randn(shape, dtype=torch.float64)
    if norm == "spectral":
        layer.parametrizations.weight[0].training = False
        layer.training = True
    got, want = factors(layer, x), factors(twin, x)
    groups = want.B.shape[0] if want.B.dim() == 3 else 1
    s = s.to(x).view(groups, -1, 1)
    B = s * want.B.view(groups, s.shape[1], -1) * s.mT
    torch.testing.assert_close(got.B.view_as(B), B)
    # Without the constant feature of the bias, which the view does not cover.
    torch.testing.assert_close(got.A, want.A[..., :-1, :-1])


class Field(nn.Module):
    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = norm(nn.Linear(3, 8)), norm(nn.Linear(8, 3))

    def forward(self, t, x):
        return self.last(torch.tanh(self.first(x)))


@pytest.mark.parametrize("norm", NORMS.values())
@pytest.mark.parametrize(("kind", "sizes"), [("linear", (4, 3)), ("conv", (2, 9))])
def test_a_view_leaves_the_bias_out_which_the_norm_does_not_scale(kind, sizes, norm):
    view = view_of(norm(LAYERS[kind][0]()))
    assert view.mode_sizes == sizes
    assert len(view.parameters) == 1


@pytest.mark.parametrize("norm", NORMS)
def test_normalised_layers_train_in_and_out_of_a_field(norm):
    norm = NORMS[norm]
    block = snopt.NeuralODE(Field(norm), method="rk4", options={"step_size": 0.5})
    model = nn.Sequential(norm(nn.Linear(3, 3)), block)
    optimizer = SNOpt(model, lr=0.05)
    rows = {row.name: row.trained_by for row in optimizer.summary().rows}
    assert rows["0"] == "kronecker"
    assert rows["1.field.first"] == "kronecker (ode)"
    assert rows["0.bias"] == "adam"
    assert sum(row.parameters for row in optimizer.summary().rows) == sum(
        p.numel() for p in model.parameters()
    )
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    losses = descend(optimizer, lambda: (model(x) - x.flip(1)).square().mean(), 30)
    assert set(optimizer.factors) == {"0", "1.field.first", "1.field.last"}
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("norm", NORMS)
def test_recording_does_not_advance_a_power_iteration_nor_change_a_gradient(norm):
    results = []
    for recorded in (False, True):
        model = snopt.NeuralODE(Field(NORMS[norm]), method="rk4", options={"step_size": 0.5})
        optimizer = SNOpt(model) if recorded else None
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
        model(x).square().mean().backward()
        state = [*(p.grad for p in model.parameters()), *model.buffers()]
        results.append([t.clone() for t in state])
    optimizer.step()
    assert set(optimizer.factors) == {"field.first", "field.last"}
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
