"""Third derivatives against autograd."""

import pytest
import torch

from snopt.second_order.higher_order import over_indices, third_order
from snopt.second_order.matrix_odes import differential_programming
from tests.problems_second_order import (
    DTYPE,
    POINTS,
    Rollout,
    TimedMLP,
    mixed_running,
    random,
    relative,
    wavy,
)

X0 = POINTS[:1]
FINE = {"method": "dopri8", "rtol": 1e-9, "atol": 1e-10}
M = 2


def field():
    return TimedMLP(width=1)


def autograd_third(running):
    """Third derivatives of the cost in z = (x0, u), row by row."""
    held = {"first_step": 1 / 5, "min_step": 1 / 5, "max_step": 1 / 5}
    rollout = Rollout(field(), X0, solver={"method": "dopri8", "options": held})
    z = rollout.z.requires_grad_()
    (g,) = torch.autograd.grad(rollout.cost(z, wavy, running), z, create_graph=True)
    rows = []
    for i in range(len(z)):
        (row,) = torch.autograd.grad(g[i], z, create_graph=True)
        eye = torch.eye(len(z), dtype=DTYPE)
        (block,) = torch.autograd.grad(row, z, eye, is_grads_batched=True, retain_graph=True)
        rows.append(block)
    return torch.stack(rows)


def agree(found, true, tolerance):
    blocks = {
        "Q_xxx": true[:M, :M, :M],
        "Q_xxu": true[:M, :M, M:],
        "Q_xuu": true[:M, M:, M:],
        "Q_uuu": true[M:, M:, M:],
    }
    for name, block in blocks.items():
        assert relative(getattr(found, name), block) < tolerance, name


def test_exact_third_derivatives_equal_autograd():
    found = third_order(field(), X0, (0.0, 1.0), wavy, mixed_running, **FINE)
    agree(found, autograd_third(mixed_running), 1e-7)


def test_linear_dynamics_give_the_third_derivative_along_the_linearised_path():
    found = third_order(field(), X0, (0.0, 1.0), wavy, exact=False, **FINE)
    rollout = Rollout(field(), X0)
    x1 = rollout.end(rollout.z).reshape(-1).detach()
    Phi_xxx = torch.func.jacrev(torch.func.hessian(lambda x: wavy(x.reshape(1, 2))))(x1)
    J = rollout.jacobian()
    agree(found, torch.einsum("abc,ai,bj,cl->ijl", Phi_xxx, J, J, J), 1e-7)


@pytest.mark.parametrize("exact", [False, True])
def test_lower_orders_are_those_of_theorem_1(exact):
    args = (field(), X0, (0.0, 1.0), wavy, mixed_running)
    solver = {"method": "rk4", "options": {"step_size": 0.25}}
    third = third_order(*args, exact=exact, **solver).second
    second = differential_programming(*args, exact=exact, **solver)
    for name in ("Q", "Q_x", "Q_u", "Q_xx", "Q_xu", "Q_uu"):
        assert relative(getattr(third, name), getattr(second, name)) < 1e-12, name


def test_sum_over_indices():
    a, b = random(3, seed=1), random(3, seed=2)
    T = torch.einsum("i,j,l->ijl", a, b, b)
    true = T + torch.einsum("i,j,l->ijl", b, a, b) + torch.einsum("i,j,l->ijl", b, b, a)
    assert relative(over_indices(T), true) < 1e-14
