"""Several observers share a block."""

import copy
import pickle

import pytest
import torch
from torch import nn

import snopt
from snopt.adjoint.observer import NodeObserver
from snopt.kronecker.observers import Observers, join, leave


class Counter:
    def __init__(self, quadrature=None):
        self.quadrature = quadrature or snopt.PerStep()
        self.weight = 0.0

    def observe(self, t, weight, x, Q_x):
        self.weight += weight


class Field(nn.Module):
    def forward(self, t, x):
        return -x


def test_every_member_is_told_of_the_whole_path():
    block, counters = snopt.NeuralODE(Field(), 2.0), [Counter() for _ in range(3)]
    for counter in counters:
        join(block, counter)
    x = torch.ones(1, 1, requires_grad=True)
    block(x).sum().backward()
    assert [counter.weight for counter in counters] == pytest.approx([2.0] * 3)
    assert isinstance(block.observer, NodeObserver)


def test_who_leaves_is_told_no_more_and_the_others_stay():
    block, first, second = snopt.NeuralODE(Field()), Counter(), Counter()
    join(block, first)
    join(block, second)
    x = torch.ones(1, 1, requires_grad=True)
    block(x).sum().backward()
    leave(block, first)
    leave(block, first)
    assert block.observer is second
    block(x).sum().backward()
    assert (first.weight, second.weight) == pytest.approx((1.0, 2.0))
    leave(block, second)
    assert block.observer is None


def test_observers_that_want_different_nodes_are_refused():
    block = snopt.NeuralODE(Field())
    join(block, Counter())
    with pytest.raises(ValueError, match=r"UniformGrid\(n=7.*same KroneckerOptions\(quadrature"):
        join(block, Counter(snopt.UniformGrid(7)))


def test_a_copied_model_has_no_observers():
    group = Observers(Counter(), Counter())
    assert copy.deepcopy(group) is None
    assert pickle.loads(pickle.dumps(group)) is None
