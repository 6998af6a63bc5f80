import math
from dataclasses import replace

import pytest
import torch

from snopt.base.errors import UnknownName
from snopt.base.packing import Packing
from snopt.ode.runge_kutta import RungeKutta
from snopt.ode.settings import Settings
from snopt.ode.solve import solve
from snopt.ode.tableau import TABLEAUS, Tableau, register_method, tableau_named
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


#: Third order with strong stability (Shu, Osher), and the trapezoidal rule inside it.
SSP = ([[], [1.0], [0.25, 0.25]], [1 / 6, 1 / 6, 2 / 3])


@pytest.fixture
def ssp3(monkeypatch):
    tableau = Tableau.explicit("ssp3", 3, *SSP, embedded=[0.5, 0.5, 0.0])
    monkeypatch.setitem(TABLEAUS, "ssp3", tableau)  # and is taken out again
    return tableau


def test_textbook_coefficients_of_a_known_method_give_that_method():
    known = TABLEAUS["bosh3"]
    rows = [known.a[i] for i in range(known.stages)]
    embedded = [7 / 24, 1 / 4, 1 / 3, 1 / 8]
    made = Tableau.explicit("bosh3", 3, rows, known.b, embedded)
    assert made.fsal
    assert made.c == pytest.approx(known.c)
    assert made.errors[0] == pytest.approx(known.errors[0])
    assert (made.a, made.dense, made.dense_order) == (known.a, known.dense, known.dense_order)


@pytest.mark.parametrize("problem", ["turning", "backward"])
def test_a_registered_method_has_its_order_and_keeps_its_tolerance(ssp3, problem):
    register_method(ssp3)  # the same once more is no fault
    end, inner = observed("ssp3", problem)
    assert 2.65 < end < 3.6
    assert inner > 2.55
    case = PROBLEMS[problem]
    settings = Settings.parse("ssp3", 1e-6, 1e-6, None)
    assert settings.adaptive
    packing = Packing.of(case.x0)
    stepper = settings.stepper(case.field, case.x0, packing)
    solution = settings.run(stepper, case.x0, [0.0, case.t1])
    error = torch.linalg.vector_norm(solution.states[-1] - case.solution(case.t1))
    assert 1e-9 < float(error) < 1e-4
    assert solution.stats.accepted > 10


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="'heun' exists already"):
        register_method(Tableau.explicit("heun", 2, [[], [0.5]], [0.0, 1.0]))


@pytest.mark.parametrize(
    ("a", "b", "embedded", "message"),
    [
        ([[], [1.0]], [0.5, 0.4], [], "weights b sum to 0.9, not to 1"),
        ([[], [0.5, 0.5]], [0.5, 0.5], [], "row 1 of a has 2 entries"),
        ([[], [1.0]], [0.5, 0.5], [0.5, 0.4], "error weights"),
        ([[], [1.0], [0.5, 0.5]], [0.5, 0.5], [], "3 rows of a and 2 weights b"),
    ],
)
def test_inconsistent_coefficients_are_refused(a, b, embedded, message):
    with pytest.raises(ValueError, match=message):
        register_method(Tableau.explicit("wrong", 2, a, b, embedded))
    assert "wrong" not in TABLEAUS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": 5}, "3 rows of a, 3 times and 5 stages are inconsistent"),
        ({"c": (0.0, 0.9, 1.0)}, r"row 1 of a sums to 1, but its time is 0\.9"),
        ({"dense": TABLEAUS["midpoint"].dense}, "dense output does not match the new state"),
    ],
)
def test_a_tableau_whose_parts_do_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        register_method(replace(TABLEAUS["heun"], name="wrong", **change))


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'dopri5'"):
        tableau_named("dorpi5")
