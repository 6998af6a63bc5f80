"""Fields that are given a context besides time and state."""

import warnings

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import GradientError
from tests.problems import descend

DOUBLE = {"dtype": torch.float64}


class Conditioned(nn.Module):
    """A field whose slope depends on a context of a dictionary with tensors and a number."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.mix = nn.Linear(3, 3, **DOUBLE)

    def forward(self, t, x, context):
        shift, (gate,) = context["shift"], context["gates"]
        return torch.tanh(self.mix(x) + shift) * torch.sigmoid(gate) * context["scale"] - 0.1 * x


class Model(nn.Module):
    """An encoder of the context, and a block."""

    def __init__(self, **settings):
        super().__init__()
        settings = {"rtol": 1e-7, "atol": 1e-7, **settings}
        self.block = snopt.NeuralODE(Conditioned(), **settings)
        self.encoder = nn.Linear(2, 3, **DOUBLE)

    def forward(self, x, c, gate, t=None):
        context = {"shift": torch.relu(self.encoder(c)), "gates": [gate], "scale": 1.5}
        return self.block(x, t, context=context)


def inputs():
    torch.manual_seed(1)
    return (
        torch.randn(4, 3, **DOUBLE, requires_grad=True),
        torch.randn(4, 2, **DOUBLE, requires_grad=True),
        torch.randn(3, **DOUBLE, requires_grad=True),
    )


def gradients(model, times=None):
    leaves = inputs()
    out = model(*leaves, times)
    wanted = [*leaves, *model.parameters()]
    return out.detach(), torch.autograd.grad((out**2).sum(), wanted)


@pytest.mark.parametrize("times", [None, [0.0, 0.3, 1.0]])
@pytest.mark.parametrize("adjoint", ["checkpoint", snopt.Checkpoint(keep=0), "backsolve"])
def test_gradients_of_the_context_are_those_of_backpropagation(adjoint, times):
    expected, wanted = gradients(Model(adjoint="direct"), times)
    assert all(gradient.abs().sum() > 0 for gradient in wanted)
    out, found = gradients(Model(adjoint=adjoint), times)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_reversible_adjoint_differentiates_for_the_context():
    _, wanted = gradients(Model(adjoint="direct"))
    fixed = {"first_step": 1e-3, "max_step": 1e-3}
    model = Model(adjoint="reversible", options=fixed, rtol=1e9, atol=1e9)
    torch.testing.assert_close(gradients(model)[1], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.usefixtures("traced")
def test_a_compiled_block_differentiates_for_the_context(carried):
    for keep in (None, 0):
        model = Model(adjoint=snopt.Checkpoint(keep=keep), compile=True)
        if carried:  # a whole solve in one step, on the caller's tape
            model.block.horizon = 0.01
            model.block.set_number("carried", 0.1)
        reference = Model(adjoint="direct")
        reference.block.horizon = model.block.horizon
        (out, found), (expected, wanted) = gradients(model), gradients(reference)
        torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "direct"])
def test_an_observed_block_with_a_context_trains_with_snopt(adjoint):
    model = Model(adjoint=adjoint)
    x, c, gate = (leaf.detach() for leaf in inputs())
    optimizer = snopt.SNOpt(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = descend(optimizer, lambda: ((model(x, c, gate) - 1.0) ** 2).mean(), 4)
    assert losses[-1] < losses[0]


def test_odeint_and_events_take_a_context():
    field, (x, _, rate) = nn.Module(), inputs()
    field.forward = lambda t, x, rate: -x * rate.exp()
    x0 = x.abs().detach() + 1.0
    for function in (snopt.odeint, snopt.odeint_adjoint):
        out = function(field, x0, [0.0, 0.5], adjoint_params=(), context=rate)
        exact = x0 * torch.exp(-0.5 * rate.exp())
        torch.testing.assert_close(out[-1], exact, rtol=1e-6, atol=1e-7)
        (found,) = torch.autograd.grad(out[-1].sum(), rate)
        (wanted,) = torch.autograd.grad(exact.sum(), rate)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    time, _ = snopt.odeint_event(
        field, x0[0, :1], torch.tensor(0.0), event_fn=lambda t, x: x - 0.5,
        context=rate[:1], adjoint_params=(),
    )  # fmt: skip
    (found,) = torch.autograd.grad(time, rate)
    exact = (x0[0, 0] / 0.5).log() * torch.exp(-rate[0])
    torch.testing.assert_close(time.double(), exact.detach(), rtol=1e-5, atol=1e-5)
    assert found[0].item() == pytest.approx(-exact.item(), rel=1e-4)


def test_hooks_on_a_context_fire_once_and_its_graph_is_left_alone():
    model, (x, c, gate) = Model(), inputs()
    calls = []
    shift = torch.relu(model.encoder(c))
    shift.register_hook(calls.append)
    model.block(x, context={"shift": shift, "gates": [gate], "scale": 1.0}).sum().backward()
    assert len(calls) == 1


def test_a_computed_attribute_is_an_error_that_names_context():
    class Attributed(nn.Module):
        def forward(self, t, x):
            return torch.tanh(x) + self.shift

    x, c, _ = inputs()
    field, encoder = Attributed(), nn.Linear(2, 3, **DOUBLE)
    for adjoint in ("checkpoint", "backsolve", "reversible"):
        block = snopt.NeuralODE(field, adjoint=adjoint)
        field.shift = encoder(c)
        with pytest.raises(GradientError, match=r"shape \(4, 3\), its attribute 'shift'.*context="):
            block(x).sum().backward()


def test_a_field_that_takes_no_context_says_so():
    class Plain(nn.Module):
        def forward(self, t, x):
            return -x

    with pytest.raises(TypeError, match=r"field\(t, x, context\)"):
        snopt.NeuralODE(Plain())(torch.ones(2), context=torch.ones(1))
