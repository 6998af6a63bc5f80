"""Solves inside ``torch.compile`` and under the transforms of ``torch.func``."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import snopt
from snopt.base.errors import GradientError
from tests.problems import TanhField, descend

FIXED = {"method": "rk4", "options": {"step_size": 0.25}}


class GraphCounter:
    """A compiler that counts its graphs and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward


class Classifier(nn.Module):
    """Layers, a block, layers."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(5, 3).double(), nn.Linear(3, 2).double()
        self.block = snopt.NeuralODE(TanhField())

    def forward(self, x):
        return self.head(torch.relu(self.block(torch.relu(self.stem(x)))))


def train(model, optimizer):
    torch.manual_seed(0)
    x, y = torch.randn(8, 5, dtype=torch.float64), torch.randint(0, 2, (8,))
    return descend(optimizer, lambda: nn.functional.cross_entropy(model(x), y), 3)


@pytest.mark.parametrize("make", [snopt.SNOpt, lambda model: torch.optim.Adam(model.parameters())])
def test_a_compiled_model_trains_as_an_eager_one(make):
    torch._dynamo.reset()
    eager = Classifier()
    model, counter = copy.deepcopy(eager), GraphCounter()
    optimizer, compiled = make(model), torch.compile(model, backend=counter)
    assert train(compiled, optimizer) == train(eager, make(eager))
    operations = {node.target for graph in counter.graphs for node in graph.graph.nodes}
    assert counter.graphs, "the layers around the block are compiled"
    assert not any("tanh" in str(target) for target in operations), "the solve is not"


def test_odeint_inside_a_compiled_function():
    torch._dynamo.reset()
    field, t = TanhField(), torch.tensor([0.0, 1.0], dtype=torch.float64)

    def loss(x):
        return (snopt.odeint(field, torch.relu(x), t)[-1] ** 2).sum()

    counter, x = GraphCounter(), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(torch.compile(loss, backend=counter)(x), x)
    (wanted,) = torch.autograd.grad(loss(x), x)
    assert torch.equal(found, wanted)
    assert len(counter.graphs) == 2


def maps(adjoint, **settings):
    """The flow by a block and by ``odeint``."""
    field, t = TanhField(), torch.tensor([0.0, 1.0], dtype=torch.float64)
    settings = {"rtol": 1e-8, "atol": 1e-8, "adjoint": adjoint, **settings}
    block = snopt.NeuralODE(field, **settings)
    return block, lambda x: snopt.odeint(field, x, t, **settings)[-1]


def summed(flow):
    return lambda x: flow(x).sum()


X = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct"])
def test_derivatives_by_torch_func(adjoint):
    for flow in maps(adjoint):
        jacobian = torch.autograd.functional.jacobian(flow, X)
        total = summed(flow)
        torch.testing.assert_close(grad(total)(X), jacobian.sum((0, 1)))
        torch.testing.assert_close(vjp(flow, X)[1](torch.ones_like(X))[0], jacobian.sum((0, 1)))
        torch.testing.assert_close(jvp(flow, (X,), (X,))[1], (jacobian * X).sum((2, 3)))
        torch.testing.assert_close(jacrev(flow)(X), jacobian)
        assert hessian(total)(X[:1]).shape == (1, 3, 1, 3)


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct"])
def test_parameter_gradients_by_functional_call(adjoint):
    block, _ = maps(adjoint)
    block(X).sum().backward()
    values = {name: p.detach() for name, p in block.named_parameters()}
    found = grad(lambda values: functional_call(block, values, (X,)).sum())(values)
    for name, parameter in block.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_vmap_over_fixed_steps():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: vmap falls back to a loop for some operations
        for flow in maps("checkpoint", **FIXED):
            torch.testing.assert_close(vmap(flow)(X), flow(X).detach())
            total = summed(flow)
            torch.testing.assert_close(vmap(grad(total))(X), grad(total)(X))


def test_what_torch_func_cannot_transform_says_what_to_use():
    for flow in maps("checkpoint"):
        with pytest.raises(GradientError, match="use fixed steps"):
            vmap(flow)(X)
    for adjoint in ("backsolve", "reversible"):
        for flow in maps(adjoint):
            with pytest.raises(GradientError, match="use adjoint='checkpoint'"):
                grad(summed(flow))(X)
