"""Newton's method on products through the recursive adjoint."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from snopt.adjoint import NeuralODE
from snopt.base.errors import NonFiniteState
from snopt.lab.optimizers.recursive import recursive_adjoint
from snopt.lab.optimizers.recursive_newton import RecursiveNewton, conjugate_gradients
from snopt.lab.train import Parts
from snopt.lab.train.step import Update
from snopt.models.fields import TanhField

DTYPE = torch.float64
X = torch.linspace(-1.0, 1.0, 24, dtype=DTYPE).reshape(12, 2)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    block = NeuralODE(TanhField(2, depth=2), rtol=1e-6, atol=1e-6)
    return nn.Sequential(nn.Linear(2, 2), block, nn.Linear(2, 1)).to(DTYPE)


def loss_of(model: nn.Module) -> torch.Tensor:
    return functional.mse_loss(model(X).squeeze(1), X.prod(1))


def closure_for(model: nn.Module, optimizer: torch.optim.Optimizer, loss=loss_of):
    def closure():
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        return value

    return closure


def symmetric(values: list[float]) -> torch.Tensor:
    q, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=DTYPE))
    return q @ torch.diag(torch.tensor(values, dtype=DTYPE)) @ q.T


def test_a_step_is_the_solution_of_the_damped_newton_equation(monkeypatch):
    monkeypatch.setattr("snopt.lab.optimizers.recursive_newton.FORCING", 1e-4)
    model = make_model()
    params = list(model.parameters())
    reference = copy.deepcopy(model)
    u = torch.cat([p.detach().reshape(-1) for p in params])

    def loss_at(u):
        pieces = u.split([p.numel() for p in params])
        named = zip(dict(reference.named_parameters()), pieces, params, strict=True)
        values = {name: piece.view_as(p) for name, piece, p in named}
        return functional.mse_loss(
            torch.func.functional_call(reference, values, X).squeeze(1), X.prod(1)
        )

    # Autograd's Hessian through every step of the solver, damped beyond its lowest eigenvalue.
    block = NeuralODE(reference[1].field, rtol=1e-9, atol=1e-9, adjoint="direct").to(DTYPE)
    reference = nn.Sequential(reference[0], block, reference[2])
    hessian = torch.autograd.functional.hessian(loss_at, u)
    gradient = torch.autograd.functional.jacobian(loss_at, u)
    damping = 0.5 - float(torch.linalg.eigvalsh(hessian)[0])

    recursive_adjoint(model)
    newton = RecursiveNewton(params, lr=0.5, damping=damping, cg_iterations=30)
    newton.step(closure_for(model, newton))
    d = (torch.cat([p.detach().reshape(-1) for p in params]) - u) / 0.5
    assert (hessian @ d + damping * d + gradient).norm() < 3e-4 * gradient.norm()
    assert 1 < newton.products < 30


def test_conjugate_gradients_end_at_negative_curvature():
    b = torch.ones(3, dtype=DTYPE)
    downwards = symmetric([-1.0, -2.0, -3.0])
    d, residual = conjugate_gradients(lambda v: downwards @ v, b, 5)
    assert torch.equal(d, b)
    assert torch.allclose(residual, b - downwards @ b)
    saddle = torch.diag(torch.tensor([1.0, 1.0, -0.5], dtype=DTYPE))
    seen = []
    d, residual = conjugate_gradients(lambda v: seen.append(v) or saddle @ v, b, 5)
    assert len(seen) == 2, "the second direction bends downwards"
    assert torch.allclose(d, 2.0 * b)
    assert torch.allclose(residual, b - saddle @ d)


@pytest.mark.parametrize("failure", ["raises", "nan"])
def test_a_product_that_fails_is_the_last(failure):
    A, b = torch.diag(torch.tensor([1.0, 5.0], dtype=DTYPE)), torch.ones(2, dtype=DTYPE)
    made = []

    def product(v):
        made.append(v)
        if len(made) < start:
            return A @ v
        if failure == "raises":
            raise NonFiniteState("no solution", t=0.0, step=0.1, norm=1.0)
        return v * math.nan

    start = 1
    d, residual = conjugate_gradients(product, b, 5)
    assert torch.equal(d, b)
    assert residual.isfinite().all()
    made, start = [], 2
    d, _ = conjugate_gradients(product, b, 5)
    assert torch.allclose(d, b / 3)
    assert len(made) == 2


def test_a_step_that_raises_the_loss_is_not_made():
    param = nn.Parameter(torch.tensor([1.0], dtype=DTYPE))
    # Almost flat here, steep beyond: the quadratic model foretells too much.
    newton = RecursiveNewton([param], lr=1.0, damping=1e-6)

    def closure():
        newton.zero_grad()
        loss = torch.where(param > 0.9, 1e-3 * param.square(), 1e3 * (0.9 - param)).sum()
        loss.backward()
        return loss

    newton.step(closure)
    assert param.item() == 1.0
    assert newton.refused == 1
    assert newton.param_groups[0]["damping"] == pytest.approx(4e-6)
    assert param.grad.item() == pytest.approx(2e-3), "the gradient is that of where we are"


def test_damping_follows_the_quality_of_the_quadratic_model():
    param = nn.Parameter(torch.tensor([1.0], dtype=DTYPE))

    def damping_after(loss):
        newton = RecursiveNewton([param], lr=1.0, damping=1.0)
        newton.step(closure_for(param, newton, loss))
        return newton.param_groups[0]["damping"]

    assert damping_after(lambda p: p.square().sum()) < 1.0, "a quadratic is foretold exactly"
    # A slope of one foretells a loss lower by one; what is met beyond the kink is less.
    for slope, factor in ((0.9, 1 / 1.5), (0.5, 1.0), (0.1, 1.5), (-0.1, 4.0)):
        param.data.fill_(1.0)
        found = damping_after(lambda p, s=slope: torch.where(p < 1, 1 - s * (1 - p), p).sum())
        assert found == pytest.approx(factor)


def test_whatever_interrupts_the_look_at_the_new_loss_leaves_the_parameters():
    model = nn.Linear(2, 1).to(DTYPE)
    newton = RecursiveNewton(model.parameters())
    before = model.weight.detach().clone()
    calls = []

    def closure():
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("a file was lost")
        newton.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    with pytest.raises(KeyError):
        newton.step(closure)
    assert torch.equal(model.weight, before)
    calls[:] = [1, 1]
    newton.step(closure)
    assert not torch.equal(model.weight, before)


def test_a_solve_that_fails_at_the_new_parameters_is_a_step_not_made():
    param = nn.Parameter(torch.tensor([1.0], dtype=DTYPE))

    def loss(p):
        if p.item() != 1.0:
            raise NonFiniteState("no solution", t=0.0, step=0.1, norm=1.0)
        return p.square().sum()

    newton = RecursiveNewton([param])
    newton.step(closure_for(param, newton, loss))
    assert (param.item(), newton.refused) == (1.0, 1)


def test_gradients_of_other_parameters_stay_for_their_own_optimizer():
    model = make_model()
    recursive_adjoint(model)
    loss_of(model).backward()
    expected = model[0].weight.grad.clone()
    newton = RecursiveNewton(model[1].parameters())
    adam = torch.optim.Adam([*model[0].parameters(), *model[2].parameters()])

    def closure():
        adam.zero_grad()
        return closure_for(model, newton)()

    newton.step(closure)
    assert torch.allclose(model[0].weight.grad, expected)
    assert model[0].weight.grad.grad_fn is None
    assert newton.products > 0


def test_several_backward_calls_are_one_loss():
    models = [nn.Linear(2, 1).to(DTYPE)]
    models.append(copy.deepcopy(models[0]))
    for model, sizes in zip(models, ([12], [4, 8]), strict=True):
        newton = RecursiveNewton(model.parameters())

        def closure(model=model, newton=newton, sizes=sizes):
            newton.zero_grad()
            total = 0.0
            for x in X.split(sizes):
                loss = (model(x).squeeze(1) - x.prod(1)).square().sum() / 12
                loss.backward()
                total += loss.item()
            return total

        newton.step(closure)
    assert torch.allclose(models[0].weight, models[1].weight)


def test_weight_decay_is_a_penalty_in_the_loss():
    plain, decayed = make_model(), make_model()

    def penalised(model):
        return loss_of(model) + 0.05 * sum(p.square().sum() for p in model.parameters())

    dampings = []
    for model, loss, decay in ((plain, penalised, 0.0), (decayed, loss_of, 0.1)):
        recursive_adjoint(model)
        newton = RecursiveNewton(model.parameters(), lr=0.7, weight_decay=decay)
        for _ in range(2):
            newton.step(closure_for(model, newton, loss))
        dampings.append(newton.param_groups[0]["damping"])
    for a, b in zip(plain.parameters(), decayed.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-10)
    assert dampings[0] == dampings[1]


def test_the_damping_is_part_of_the_state():
    model = nn.Linear(2, 1).to(DTYPE)
    newton = RecursiveNewton(model.parameters())
    newton.step(closure_for(model, newton))
    fresh = RecursiveNewton(model.parameters())
    fresh.load_state_dict(copy.deepcopy(newton.state_dict()))
    assert fresh.param_groups[0]["damping"] == newton.param_groups[0]["damping"] != 0.1


def test_the_training_loop_survives_a_loss_that_is_not_finite():
    model = make_model()
    recursive_adjoint(model)
    newton = RecursiveNewton(model[1].parameters())
    rest = [*model[0].parameters(), *model[2].parameters()]
    adam = torch.optim.Adam(rest, lr=1e-2)
    update = Update(
        lambda x: functional.mse_loss(model(x).squeeze(1), x.prod(1)), Parts(model, [newton, adam])
    )
    before = [p.detach().clone() for p in model.parameters()]
    _, reason = update(X * math.nan)
    assert reason is not None
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    losses = [update(X)[0] for _ in range(4)]
    assert losses[-1] < losses[0]
    assert all((p != old).any() for p, old in zip(model.parameters(), before, strict=True))


def test_what_cannot_work_is_refused(monkeypatch):
    model = nn.Linear(2, 1).to(DTYPE)
    newton = RecursiveNewton(model.parameters())
    with pytest.raises(RuntimeError, match=r"did not call loss\.backward"):
        newton.step(lambda: loss_of(model))
    with pytest.raises(ValueError, match="damping = 0"):
        RecursiveNewton(model.parameters(), damping=0.0)
    with pytest.raises(ValueError, match="2 groups"):
        RecursiveNewton([{"params": [model.weight]}, {"params": [model.bias]}])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match="one process"):
        RecursiveNewton(model.parameters())
