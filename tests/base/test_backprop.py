"""Gradients without the checks of ``torch.autograd.grad``."""

import pytest
import torch
from torch.autograd.graph import get_gradient_edge

from snopt.base.backprop import backpropagate


def network() -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    x = torch.randn(6, 4, requires_grad=True)
    return net(x), [x, *net.parameters()], torch.randn(6, 4)


def test_gradients_are_those_of_autograd_to_the_bit():
    value, inputs, cotangent = network()
    ours = backpropagate([value], inputs, [cotangent], keep=True)
    theirs = torch.autograd.grad(value, inputs, cotangent, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_the_tape_is_freed_unless_it_is_kept():
    value, inputs, cotangent = network()
    backpropagate([value], inputs, [cotangent])
    with pytest.raises(RuntimeError, match="second time"):
        backpropagate([value], inputs, [cotangent])


def test_leaves_that_are_not_asked_for_get_no_gradient():
    value, inputs, cotangent = network()
    assert backpropagate([value], [], [cotangent], keep=True) == ()
    backpropagate([value], inputs[:1], [cotangent])
    assert all(tensor.grad is None for tensor in inputs)


def test_edges_of_the_graph_are_inputs_too():
    x = torch.ones(2, requires_grad=True)
    inner = x * 2
    (found,) = backpropagate([inner * 3], [get_gradient_edge(inner)], [torch.ones(2)])
    assert torch.equal(found, torch.full((2,), 3.0))


def test_a_cotangent_of_another_shape_is_an_error():
    value, inputs, _ = network()
    with pytest.raises(RuntimeError, match="shape"):
        backpropagate([value], inputs, [torch.ones(3)])
