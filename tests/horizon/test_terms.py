"""Q_T, Q_TT, Q_Tx, Q_Tu against autograd through a solve, finite differences, and by hand."""

import pytest
import torch

from snopt.base.errors import UnknownName
from snopt.horizon.terms import horizon_terms, penalty_slopes
from snopt.second_order.matrix_odes import differential_programming
from tests.horizon.problems import DTYPE, Drift, Forced, Growth, cost_of
from tests.problems_second_order import (
    POINTS,
    TimedMLP,
    cross_entropy,
    mixed_running,
    relative,
    wavy,
)

TIGHT = {"method": "dopri8", "rtol": 1e-10, "atol": 1e-11}
ONE = torch.tensor([0.6], dtype=DTYPE)


def quadratic(x):
    return 0.5 * (x - 1.0).square().sum()


def barrier(T):
    return 0.1 * T**2 - 0.05 * torch.log(T)


def autograd(field, x0, times, terminal, running=None, penalty=None):
    """First and second derivatives in T, x0 and the parameters, T first."""
    t0, T = times
    cost = cost_of(field, t0, terminal, running, penalty)
    at = (torch.tensor(T, dtype=DTYPE), x0, *(p.detach() for p in field.parameters()))
    hessian = torch.autograd.functional.hessian(cost, at)
    first = torch.autograd.functional.jacobian(cost, at)
    Q_Tu = torch.cat([block.reshape(-1) for block in hessian[0][2:]])
    return first[0], hessian[0][0], hessian[0][1].reshape(-1), Q_Tu


CASES = {
    "scalar autonomous": (Growth, ONE, (0.0, 0.9), quadratic, None, None),
    "scalar with time": (Forced, ONE, (0.2, 1.1), wavy, None, barrier),
    "scalar backwards": (Forced, ONE, (0.2, -0.8), quadratic, None, None),
    "vector": (TimedMLP, POINTS, (0.0, 0.8), cross_entropy, None, barrier),
    "vector wavy": (TimedMLP, POINTS, (0.1, 0.9), wavy, None, None),
    "vector running": (TimedMLP, POINTS, (0.0, 0.7), cross_entropy, mixed_running, barrier),
    "scalar running": (Growth, ONE, (0.0, 0.9), quadratic, mixed_running, None),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_terms_are_autograds_derivatives(name):
    make, x0, times, terminal, running, penalty = CASES[name]
    field = make()
    found = horizon_terms(field, x0, times, terminal, running, penalty or 0.0, exact=True, **TIGHT)
    true = autograd(field, x0, times, terminal, running, penalty)
    for value, expected in zip(vars(found).values(), true, strict=True):
        assert relative(value, expected) < 1e-6


@pytest.mark.parametrize("terminal", [quadratic, wavy])
def test_the_papers_terms_are_exact_where_the_field_stands_still(terminal):
    """dF/dt = 0 along the path of a constant field, so that only F_u is left out, of Q_Tu."""
    field, x0 = Drift(1.4), ONE
    papers = horizon_terms(field, x0, (0.0, 0.8), terminal, penalty=0.3, **TIGHT)
    true = autograd(field, x0, (0.0, 0.8), terminal, penalty=lambda T: 0.15 * T**2)
    assert relative(papers.Q_T, true[0]) < 1e-8
    assert relative(papers.Q_TT, true[1]) < 1e-8
    assert relative(papers.Q_Tx, true[2]) < 1e-8
    x1 = x0 + 1.4 * 0.8
    left_out = torch.func.grad(terminal)(x1)  # Φ_xᵀ F_u, with F_u = 1
    assert relative(papers.Q_Tu + left_out, true[3]) < 1e-8


def test_the_papers_terms_hold_the_field_still_elsewhere():
    """Growth from 1: x' = ux, so that Fᵀ Φ_xx F = (ux)², and the exact one has u² x Φ_x more."""
    field, x0 = Growth(), torch.ones(1, dtype=DTYPE)
    x1 = torch.exp(field.u.detach() * 0.9)
    arguments = (field, x0, (0.0, 0.9), quadratic)
    papers = horizon_terms(*arguments, **TIGHT)
    exact = horizon_terms(*arguments, exact=True, **TIGHT)
    u = field.u.detach()
    assert relative(papers.Q_TT, (u * x1).square()[0]) < 1e-8
    assert relative(exact.Q_TT - papers.Q_TT, (u * u * x1 * (x1 - 1.0))[0]) < 1e-8


@pytest.mark.parametrize("name", ["scalar with time", "scalar backwards", "vector"])
def test_practical_formulas_solve_the_boxed_odes(name):
    """With Φ_xx = Φ_x Φ_xᵀ: Q_TT = P'' + s², Q_Tx = s Q_x, Q_Tu = s Q_u, for s = Φ_xᵀ F."""
    make, x0, times, terminal, _, _ = CASES[name]
    field, c = make(), 0.2
    found = horizon_terms(field, x0, times, terminal, penalty=c, terminal="gradient", **TIGHT)
    first = differential_programming(field, x0, times, terminal, **TIGHT)
    s = found.Q_T - c * (times[1] - times[0])
    assert relative(found.Q_TT, c + s.square()) < 1e-9
    assert relative(found.Q_Tx, s * first.Q_x) < 1e-8
    assert relative(found.Q_Tu, s * first.Q_u) < 1e-8


def test_a_field_without_parameters_has_no_mixed_derivative_with_them():
    field = Drift()
    field.k.requires_grad_(False)
    found = horizon_terms(field, ONE, (0.0, 1.0), quadratic, exact=True)
    assert found.Q_Tu.shape == (0,)
    assert relative(found.Q_Tx, torch.ones(1, dtype=DTYPE)) < 1e-8


def test_penalties_may_be_any_function_of_the_horizon():
    assert penalty_slopes(0.5, 3.0, t0=1.0) == (1.0, 0.5)
    assert penalty_slopes(lambda T: 2.0 * T, 3.0) == (2.0, 0.0)
    assert penalty_slopes(torch.exp, 0.0) == (1.0, 1.0)
    assert penalty_slopes(lambda T: 0.1 * T.abs(), -3.0) == pytest.approx((-0.1, 0.0))


@pytest.mark.parametrize(
    "penalty",
    [lambda T: 1.0, lambda T: T.item() ** 2, lambda T: torch.ones(()), lambda T: T.expand(2)],
)
def test_a_penalty_without_derivative_is_refused(penalty):
    with pytest.raises(TypeError, match="no derivative in T"):
        penalty_slopes(penalty, 1.0)


def test_an_unknown_terminal_curvature_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'hessian'"):
        horizon_terms(Growth(), ONE, (0.0, 1.0), quadratic, terminal="hesian")
