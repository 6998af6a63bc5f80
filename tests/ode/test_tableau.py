import math

import pytest
import torch

from snopt.base.errors import UnknownName
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.solve import solve
from snopt.ode.tableau import TABLEAUS, tableau_named
from tests.problems import PROBLEMS

METHODS = sorted(TABLEAUS)


@pytest.mark.parametrize("name", METHODS)
def test_rows_are_consistent(name):
    tableau = TABLEAUS[name]
    for c, row in zip(tableau.c, tableau.a, strict=True):
        assert math.isclose(sum(row), c, abs_tol=1e-14)
    assert math.isclose(sum(tableau.b), 1.0, abs_tol=1e-14)
    for row in tableau.errors:
        assert abs(sum(row)) < 1e-14


@pytest.mark.parametrize("name", METHODS)
def test_dense_output_starts_at_the_state_and_ends_at_the_step(name):
    tableau = TABLEAUS[name]
    assert all(weight == 0.0 for weight in tableau.dense_weights(0.0))
    end = tableau.dense_weights(1.0)
    for i, weight in enumerate(end):
        b = tableau.b[i] if i < tableau.stages else 0.0
        assert math.isclose(weight, b, abs_tol=1e-12)


def observed(name: str, problem: str) -> tuple[float, float]:
    """Orders at the end, and inside a step by dense output, from steps of h and h/2."""
    case, tableau = PROBLEMS[problem], TABLEAUS[name]
    end_errors, inner_errors = [], []
    coarse = {8: 6, 5: 16}.get(tableau.order, 32)
    for count in (coarse, 2 * coarse):
        h = case.t1 / count
        inner = h * (count // 2 + 0.37)
        stepper = RungeKutta(tableau, case.field, case.x0, None)
        grid = [*(h * i for i in range(1, count)), case.t1]
        states = solve(stepper, case.x0, [0.0, inner, case.t1], stops=grid).states
        end_errors.append(torch.linalg.vector_norm(states[2] - case.solution(case.t1)).item())
        inner_errors.append(torch.linalg.vector_norm(states[1] - case.solution(inner)).item())
    return tuple(math.log2(errors[0] / errors[1]) for errors in (end_errors, inner_errors))


@pytest.mark.parametrize("problem", ["turning", "backward", "complex"])
@pytest.mark.parametrize("name", METHODS)
def test_observed_order_is_the_stated_one(name, problem):
    tableau = TABLEAUS[name]
    end, inner = observed(name, problem)
    assert end > tableau.order - 0.35, f"{name}: order {end:.2f}"
    # Locally dense output has one order more; the solution itself limits it.
    assert inner > min(tableau.order, tableau.dense_order) - 0.45, f"{name}: dense {inner:.2f}"
    if tableau.order < 5:  # an order too good would mean the problem tests nothing
        assert end < tableau.order + 0.6


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'dopri5'"):
        tableau_named("dorpi5")
