"""Which calls count, and that recording leaves everything else alone."""

import copy
import pickle

import pytest
import torch
from torch import nn

from snopt.base.isolation import preserving
from snopt.kronecker import Tap, recorded_calls
from snopt.kronecker.calls import first_input


def tapped(layer):
    seen = []

    def report(arguments, gradients):
        seen.append((first_input(arguments), *gradients))

    layer.register_forward_hook(Tap(report, lambda reason: None), with_kwargs=True)
    return seen


def test_a_training_call_counts_once_when_its_gradient_arrives():
    layer = nn.Linear(3, 2)
    seen = tapped(layer)
    z = torch.randn(4, 3)
    loss = layer(z).pow(2).sum()
    assert seen == []
    loss.backward()
    ((got_z, got_g),) = seen
    assert torch.equal(got_z, z)
    torch.testing.assert_close(got_g, 2 * layer(z).detach())


@pytest.mark.parametrize("way", ["eval", "no_grad", "not differentiated"])
def test_other_calls_do_not_count(way):
    layer = nn.Linear(3, 2)
    seen = tapped(layer)
    if way == "eval":
        layer.eval()(torch.randn(4, 3)).sum().backward()
    elif way == "no_grad":
        with torch.no_grad():
            layer(torch.randn(4, 3))
    else:
        layer(torch.randn(4, 3))
    assert seen == []


def test_a_layer_used_twice_counts_twice():
    layer = nn.Linear(3, 3)
    seen = tapped(layer)
    layer(layer(torch.randn(4, 3))).sum().backward()
    assert len(seen) == 2


def test_the_inner_pass_of_a_gradient_penalty_does_not_count():
    layer = nn.Linear(3, 1)
    seen = tapped(layer)
    x = torch.randn(4, 3, requires_grad=True)
    out = torch.tanh(layer(x))
    (inner,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (out.sum() + inner.pow(2).sum()).backward()
    assert len(seen) == 1


def test_an_activation_in_place_does_not_disturb_the_gradient():
    def gradient(inplace, way):
        torch.manual_seed(0)
        layer, x = nn.Linear(3, 2), torch.randn(4, 3)
        if way == "tap":
            seen = tapped(layer)
            nn.ReLU(inplace)(layer(x)).sum().backward()
            return seen[0][1]
        with recorded_calls({"layer": layer}) as calls:
            out = nn.ReLU(inplace)(layer(x))
        return torch.autograd.grad(out.sum(), calls[0].outputs)[0]

    expected = gradient(False, "tap")
    assert expected.min() == 0
    for way in ("tap", "context"):
        assert torch.equal(gradient(True, way), expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_counts_once(reentrant):
    layer = nn.Linear(3, 3)
    seen = tapped(layer)
    x = torch.randn(4, 3, requires_grad=True)
    torch.utils.checkpoint.checkpoint(
        lambda x: torch.tanh(layer(x)), x, use_reentrant=reentrant
    ).sum().backward()
    assert len(seen) == 1


def test_an_input_may_be_passed_by_name():
    layer = nn.Linear(3, 2)
    seen = tapped(layer)
    layer(input=torch.randn(4, 3)).sum().backward()
    with recorded_calls({"layer": layer}) as calls:
        layer(input=torch.randn(4, 3))
    assert len(seen) == len(calls) == 1


def test_hooks_are_gone_after_the_context_even_after_an_error():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match="boom"), recorded_calls({"layer": layer}):
        raise ValueError("boom")
    assert not layer._forward_hooks


def test_a_tapped_layer_can_be_copied_and_pickled_and_the_copy_is_inert():
    layer = nn.Linear(3, 2)
    seen = tapped(layer)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        other(torch.randn(4, 3)).sum().backward()
    assert seen == []


def test_preserving_restores_running_statistics():
    norm = nn.BatchNorm1d(3)
    before = copy.deepcopy(norm.state_dict())
    with preserving(norm, torch.device("cpu")):
        norm(torch.randn(8, 3))
    assert all(torch.equal(before[key], value) for key, value in norm.state_dict().items())
