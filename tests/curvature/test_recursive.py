"""The recursive adjoint, a baseline that must be right before it is called inaccurate."""

import pytest
import torch

from snopt.curvature.recursive import (
    adjoint_field,
    recursive_gradient,
    recursive_hessian_product,
)
from tests.problems_second_order import (
    DTYPE,
    POINTS,
    BilinearField,
    TimedMLP,
    bilinear_solution,
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


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_equals_autograd_at_fine_tolerance(solver):
    true, v = mlp_truth(cross_entropy), random(2, 20, seed=1)
    args = (TimedMLP(), POINTS, (0.0, 1.0), cross_entropy)
    assert relative(recursive_gradient(*args, **solver), true["gradient"][4:]) < 1e-7
    found = recursive_hessian_product(*args, v, **solver)
    assert relative(found, v @ true["hessian"][4:, 4:]) < 1e-6


def test_bilinear_field_has_the_closed_form():
    field, x0 = BilinearField(), random(3, seed=5)
    P = torch.eye(3, dtype=DTYPE)
    true = bilinear_solution(field, x0, P, 1.0, exact=True)
    found = recursive_hessian_product(
        field, x0, (0.0, 1.0), lambda x: 0.5 * x @ x, torch.eye(9, dtype=DTYPE)[:3],
        rtol=1e-10, atol=1e-11,
    )  # fmt: skip
    assert relative(found, true["Q_uu"][:3]) < 1e-8


def test_augmented_field_is_the_adjoint_ode():
    A, x, a = random(3, 3, seed=1), random(3, seed=2), random(3, seed=3)
    G = adjoint_field(lambda t, x, u: u.reshape(3, 3) @ x, 3)
    with torch.no_grad():
        out = G(torch.tensor(0.0), torch.cat([x, a, torch.zeros(9)]), A.reshape(-1))
    true = torch.cat([A @ x, -A.mT @ a, -torch.outer(a, x).reshape(-1)])
    assert relative(out, true) < 1e-12
    assert not out.requires_grad
