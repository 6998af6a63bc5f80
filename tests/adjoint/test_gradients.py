"""All adjoints against each other, finite differences, gradcheck, torchdiffeq and scipy."""

from itertools import product

import numpy as np
import pytest
import scipy.integrate
import torch
import torchdiffeq

import snopt
from snopt.base.errors import GradientError
from tests.problems import TanhField

ADJOINTS = ["checkpoint", "backsolve", "reversible", "direct"]
TIMES = [0.0, 0.3, 0.31, 0.9]
BACKWARD_TIMES = [0.4, -0.1, -0.6]


def loss_of(states, weights):
    return (states * weights).sum()


def gradients(solve, field, x0, t, weights):
    """Gradients for parameters, initial state and times of a weighted sum of all states."""
    leaves = [*field.parameters(), x0, t]
    found = torch.autograd.grad(loss_of(solve(), weights), leaves)
    return torch.cat([part.reshape(-1) for part in found])


@pytest.fixture
def problem():
    field = TanhField()
    x0 = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    return field, x0


def relative(a, b):
    return (torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b)).item()


METHODS = ["bosh3", "dopri5", "tsit5", "dopri8", "implicit_adams"]


@pytest.mark.parametrize("times", [TIMES, BACKWARD_TIMES], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("adjoint", "method"),
    [*product(["checkpoint", "backsolve", "direct"], METHODS), ("reversible", None)],
)
def test_adjoints_agree_with_torchdiffeq_at_a_fine_tolerance(problem, adjoint, method, times):
    field, x0 = problem
    tol = 1e-7 if adjoint == "reversible" else 1e-9
    t = torch.tensor(times, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(len(times), 4, 3, dtype=torch.float64)
    options = {"step_size": 0.01} if method == "implicit_adams" else None

    def exact():
        return torchdiffeq.odeint(field, x0, t, rtol=1e-11, atol=1e-11)

    def ours():
        return snopt.odeint(
            field, x0, t, rtol=tol, atol=tol, method=method, adjoint=adjoint, options=options
        )

    expected = gradients(exact, field, x0, t, weights)
    assert relative(gradients(ours, field, x0, t, weights), expected) < 1e-6


@pytest.mark.parametrize("adjoint", [None, *ADJOINTS])
def test_parameters_that_are_not_on_the_field(adjoint):
    """Without an adjoint a closure is backpropagated through, and needs no list of them."""
    scale = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    x0 = torch.ones(2, dtype=torch.float64)
    more = {"adjoint": adjoint, "adjoint_params": (scale,)} if adjoint else {}
    x = snopt.odeint(lambda t, x: -scale * x, x0, [0.0, 1.5], rtol=1e-8, atol=1e-8, **more)
    (gradient,) = torch.autograd.grad(x[-1].sum(), scale)
    assert gradient.item() == pytest.approx(-1.5 * 2 * np.exp(-1.05), rel=1e-5)


class Leaky(torch.nn.Module):
    """A module that uses a tensor which it does not own."""

    def __init__(self, outside):
        super().__init__()
        self.own = torch.nn.Linear(2, 2, dtype=torch.float64)
        self.outside = [outside]

    def forward(self, t, x):
        return self.own(x) * self.outside[0]


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible"])
def test_a_tensor_that_would_silently_get_no_gradient_is_an_error(adjoint):
    outside = torch.ones(1, dtype=torch.float64, requires_grad=True)
    field, x0 = Leaky(outside), torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(GradientError, match="context="):
        snopt.odeint(field, x0, [0.0, 1.0], adjoint=adjoint)[-1].sum().backward()
    params = (*field.parameters(), outside)
    snopt.odeint(field, x0, [0.0, 1.0], adjoint=adjoint, adjoint_params=params, rtol=1e-4,
                 atol=1e-4)[-1].sum().backward()  # fmt: skip
    assert outside.grad is not None


def test_odeint_adjoint_asks_for_the_parameters_of_a_closure():
    with pytest.raises(GradientError, match="adjoint_params"):
        snopt.odeint_adjoint(lambda t, x: -x, torch.ones(1), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible"])
def test_second_derivatives_point_to_the_direct_adjoint(problem, adjoint):
    field, x0 = problem
    x = snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-3, atol=1e-3, adjoint=adjoint)
    with pytest.raises(GradientError, match="adjoint='direct'"):
        torch.autograd.grad(x[-1].sum(), x0, create_graph=True)


def test_direct_has_second_derivatives(problem):
    field, x0 = problem

    def slope(x):
        end = snopt.odeint(field, x, [0.0, 1.0], rtol=1e-9, atol=1e-9, adjoint="direct")[-1]
        return torch.autograd.grad((end**2).sum(), x, create_graph=True)[0]

    direction, eps = torch.randn_like(x0), 1e-5
    (found,) = torch.autograd.grad((slope(x0) * direction).sum(), x0)
    numeric = (slope(x0 + eps * direction) - slope(x0 - eps * direction)) / (2 * eps)
    assert relative(found, numeric.detach()) < 1e-6


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_backward_twice_with_a_retained_graph(problem, adjoint):
    field, x0 = problem
    x = snopt.odeint(field, x0, TIMES, rtol=1e-3, atol=1e-3, adjoint=adjoint)
    loss = (x**2).sum()
    first = torch.autograd.grad(loss, [x0, *field.parameters()], retain_graph=True)
    second = torch.autograd.grad(loss, [x0, *field.parameters()])
    for a, b in zip(first, second, strict=True):
        assert relative(a, b) < 1e-14


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_frozen_parameters_and_unused_ones_are_left_alone(adjoint):
    field = TanhField()
    field.first.weight.requires_grad_(False)
    field.idle = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    x0 = torch.randn(2, 3, dtype=torch.float64)
    snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-4, atol=1e-4, adjoint=adjoint)[-1].sum().backward()
    assert field.first.weight.grad is None
    if adjoint == "backsolve":  # as torchdiffeq's odeint_adjoint
        assert torch.equal(field.idle.grad, torch.zeros_like(field.idle))
    else:
        assert field.idle.grad is None
    assert field.second.weight.grad is not None


@pytest.mark.parametrize("problem_name", ["van_der_pol", "lorenz", "robertson_mild"])
def test_solutions_agree_with_scipy_and_torchdiffeq(problem_name):
    fields = {
        "van_der_pol": (lambda x: [x[1], 5.0 * (1 - x[0] ** 2) * x[1] - x[0]], [2.0, 0.0], 6.0),
        "lorenz": (
            lambda x: [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]],
            [1.0, 1.0, 20.0],
            2.0,
        ),
        "robertson_mild": (
            lambda x: [-0.4 * x[0] + 1e2 * x[1] * x[2],
                       0.4 * x[0] - 1e2 * x[1] * x[2] - 3e3 * x[1] ** 2, 3e3 * x[1] ** 2],
            [1.0, 0.0, 0.0],
            3.0,
        ),
    }  # fmt: skip
    rule, start, t1 = fields[problem_name]
    times = np.linspace(0.0, t1, 40)
    expected = scipy.integrate.solve_ivp(
        lambda t, x: rule(x),
        (0.0, t1),
        start,
        method="DOP853",
        rtol=1e-11,
        atol=1e-12,
        t_eval=times,
    ).y.T
    x0 = torch.tensor(start, dtype=torch.float64)
    t = torch.tensor(times)

    def field(t, x):
        return torch.stack([torch.as_tensor(part) for part in rule(x)])

    peer = torchdiffeq.odeint(field, x0, t, rtol=1e-8, atol=1e-10)
    for method in ("dopri5", "tsit5", "dopri8"):
        found = snopt.odeint(field, x0, t, rtol=1e-8, atol=1e-10, method=method)
        error = np.abs(found.numpy() - expected).max()
        assert error < max(2e-5, 3 * np.abs(peer.numpy() - expected).max())


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
def test_fixed_steps_give_torchdiffeqs_numbers(problem, method):
    field, x0 = problem
    t = torch.linspace(0.0, 1.0, 11, dtype=torch.float64)
    with torch.no_grad():
        ours = snopt.odeint(field, x0, t, method=method)
        theirs = torchdiffeq.odeint(field, x0, t, method=method)
    assert torch.allclose(ours, theirs, rtol=1e-13, atol=1e-13)
