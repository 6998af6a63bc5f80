"""The recursive adjoint, a baseline that must be right before it is called inaccurate."""

import pytest
import torch
from torch.nn import functional

from snopt.adjoint import NeuralODE, odeint
from snopt.base.errors import GradientError
from snopt.lab.optimizers.recursive import Recursive, recursive_adjoint
from snopt.models import CNF, ODERNN
from snopt.models.fields import TanhField
from snopt.optim import SNOpt
from tests.problems_second_order import (
    DTYPE,
    POINTS,
    TimedMLP,
    cross_entropy,
    mlp_truth,
    random,
    relative,
)

SOLVERS = {
    "rk4": {"method": "rk4", "options": {"step_size": 1 / 64}},
    "dopri5": {"method": "dopri5", "rtol": 1e-10, "atol": 1e-11},
    "implicit_adams": {"method": "implicit_adams", "options": {"step_size": 1 / 128}},
}


def derivatives(field, x0, cost, v, **solver):
    """Gradient in the parameters, and products of the Hessian with rows of v."""
    params = tuple(field.parameters())
    x1 = odeint(field, x0, (0.0, 1.0), adjoint=Recursive(), **solver)[-1]
    g = torch.cat([p.flatten() for p in torch.autograd.grad(cost(x1), params, create_graph=True)])
    rows = [torch.autograd.grad(g, params, row, retain_graph=True) for row in v]
    return g.detach(), torch.stack([torch.cat([p.flatten() for p in row]) for row in rows])


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_equals_autograd_at_fine_tolerance(solver):
    true, v = mlp_truth(cross_entropy), random(2, 20, seed=1)
    gradient, products = derivatives(TimedMLP(), POINTS, cross_entropy, v, **solver)
    assert relative(gradient, true["gradient"][4:]) < 1e-7
    assert relative(products, v @ true["hessian"][4:, 4:]) < 1e-6


SERIES, LABELS = random(4, 5, 3, seed=1), torch.tensor([0, 1, 2, 1])
FLOWS = {"exact": {}, "estimated": {"divergence": "rademacher"}, "hyper": {"hypernetwork": True}}
MODELS = {
    "series": (lambda **s: ODERNN(3, 3, 6, **s), lambda m: m(SERIES)),
    "irregular series": (
        lambda **s: ODERNN(3, 3, 6, **s),
        lambda m: m(SERIES, times=random(4, 5, seed=2).abs().cumsum(1)),
    ),
    "path": (
        lambda **s: NeuralODE(TanhField(3, depth=2), **s),
        lambda m: m(SERIES[:, 0], [0.0, 0.3, 1.0]).sum(0),
    ),
    **{
        f"flow, {name}": (
            lambda choice=choice, **s: CNF(3, (4,), **choice, **s),
            lambda m: m.log_prob(SERIES[:, 0])[:, None] * torch.arange(3),
        )
        for name, choice in FLOWS.items()
    },
}


def second_order(make, forward, adjoint):
    """Gradient and a Hessian-vector product of a whole model."""
    torch.manual_seed(0)
    model = make(rtol=1e-8, atol=1e-8, adjoint=adjoint).to(DTYPE)
    if adjoint == "checkpoint":
        recursive_adjoint(model)
    params = list(model.parameters())
    v = [random(*p.shape, seed=i) for i, p in enumerate(params)]
    torch.manual_seed(1)
    loss = functional.cross_entropy(forward(model), LABELS)
    g = torch.autograd.grad(loss, params, create_graph=True, materialize_grads=True)
    h = torch.autograd.grad(g, params, v, materialize_grads=True)
    return [torch.cat([part.detach().reshape(-1) for part in parts]) for parts in (g, h)]


@pytest.mark.parametrize("name", MODELS)
def test_whole_models_have_second_derivatives(name):
    (g, h), (true_g, true_h) = (second_order(*MODELS[name], a) for a in ("checkpoint", "direct"))
    assert relative(g, true_g) < 1e-6
    assert relative(h, true_h) < 1e-6
    assert true_h.norm() > 1e-3


def test_blocks_are_switched_until_the_handle_is_removed():
    block = NeuralODE(TanhField(2))
    with recursive_adjoint(block):
        assert "adjoint='recursive'" in repr(block)
        block(torch.ones(3, 2)).sum().backward()
        assert block.stats.nfe_forward > 0
        assert block.totals.nfe_backward == block.stats.nfe_backward > 0
        assert block.carried_buffer > 0
    assert "adjoint='checkpoint'" in repr(block)


def test_evaluation_takes_the_steps_it_took_before():
    block = NeuralODE(TanhField(2)).eval()
    with torch.no_grad():
        before = block(torch.ones(3, 2))
        recursive_adjoint(block)
        assert torch.equal(block(torch.ones(3, 2)), before)


def test_solvers_that_mean_nothing_for_augmented_states_are_refused():
    for options, reason in (
        ({"adjoint": "reversible"}, "leapfrog"),
        ({"rtol": (1e-3, 1e-4)}, "one number for all"),
        ({"method": "rk4", "options": {"grid_constructor": lambda f, y, t: t}}, "step_size"),
    ):
        block = NeuralODE(TanhField(2), **options)
        with pytest.raises(ValueError, match=reason):
            recursive_adjoint(block)
        assert "recursive" not in repr(block)


def test_observers_are_refused_because_nobody_would_tell_them():
    block = NeuralODE(TanhField(2))
    optimizer = SNOpt(block, lr=0.1)
    recursive_adjoint(block)
    with pytest.raises(GradientError, match="reports no quadrature nodes"):
        block(torch.ones(3, 2)).sum().backward()
    assert optimizer is not None
