"""Proposition 2: factors for any rank, and equality with Theorem 1 at full rank."""

import pytest
import torch
from torch import nn

from snopt.second_order.low_rank import low_rank
from snopt.second_order.matrix_odes import differential_programming
from snopt.second_order.outer_products import (
    OuterProducts,
    gradient_factor,
    hessian_factors,
    loss_factors,
    matrix_factors,
)
from tests.problems_second_order import (
    DTYPE,
    POINTS,
    TimedMLP,
    cross_entropy,
    mlp_truth,
    observed_orders,
    random,
    relative,
    wavy,
)

MEDIUM = {"method": "rk4", "options": {"step_size": 1 / 16}}
FINE = {"method": "dopri8", "rtol": 1e-9, "atol": 1e-10}
BLOCKS = ("Q_xx", "Q_xu", "Q_uu")


def squared_error(x):
    return nn.functional.mse_loss(x, torch.zeros_like(x))


@pytest.mark.parametrize(
    ("terminal", "cost"),
    [
        (hessian_factors(wavy), wavy),  # indefinite: factors with signs
        (hessian_factors(cross_entropy), cross_entropy),
        (loss_factors("cross_entropy"), cross_entropy),
        (loss_factors("squared_error"), squared_error),
    ],
    ids=["indefinite", "hessian of a loss", "cross_entropy", "squared_error"],
)
def test_equals_theorem_1_at_full_rank(terminal, cost):
    dense = differential_programming(TimedMLP(), POINTS, (0.0, 1.0), cost, **FINE)
    thin = low_rank(TimedMLP(), POINTS, (0.0, 1.0), terminal, **FINE)
    for name in BLOCKS:
        # Both solves have an error of their own: their difference is that of the method.
        assert relative(getattr(thin, name), getattr(dense, name)) < 1e-7, name


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_factors_are_pull_backs_of_the_terminal_ones_for_any_rank(rank):
    y = random(rank, 4, seed=7)
    thin = low_rank(TimedMLP(), POINTS, (0.0, 1.0), OuterProducts(y, torch.ones(rank)), **FINE)
    J = mlp_truth(cross_entropy)["jacobian"]
    assert thin.rank == rank
    assert relative(torch.cat([thin.q, thin.p], dim=1), y @ J) < 1e-7


def test_truncated_rank_keeps_the_largest_eigenvalues():
    M = torch.diag(torch.tensor([0.1, -5.0, 2.0, 0.0], dtype=DTYPE))
    kept = matrix_factors(M, rank=2)
    assert torch.allclose(kept.dense, torch.diag(torch.tensor([0.0, -5.0, 2.0, 0.0], dtype=DTYPE)))
    assert matrix_factors(M).y.shape == (3, 4)
    assert torch.allclose(matrix_factors(M).dense, M)


def test_gradient_factor_is_the_rank_one_choice():
    thin = low_rank(TimedMLP(), POINTS, (0.0, 1.0), gradient_factor(cross_entropy, 1 / 4), **FINE)
    gradient = mlp_truth(cross_entropy)["gradient"]
    assert thin.rank == 1
    assert relative(thin.p[0], 0.5 * gradient[4:]) < 1e-7
    assert relative(thin.q[0], 0.5 * gradient[:4]) < 1e-7


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_factors_go_through_a_readout(reduction):
    head = nn.Linear(2, 3, dtype=DTYPE)
    labels = torch.tensor([2, 0])

    def cost(x):
        return nn.functional.cross_entropy(head(x), labels, reduction=reduction)

    # A linear readout has no curvature of its own, so that the factors are exact.
    thin = loss_factors("cross_entropy", head, reduction)(POINTS)
    true = torch.autograd.functional.hessian(cost, POINTS).reshape(4, 4)
    assert thin.y.shape == (6, 4)
    assert relative(thin.dense, true) < 1e-12


def test_products_and_eigenvalues_without_the_matrix():
    thin = low_rank(TimedMLP(), POINTS, (0.0, 1.0), hessian_factors(wavy, 3), **MEDIUM)
    v = random(5, 20, seed=8)
    assert relative(thin.product(v, gamma=0.3), v @ thin.Q_uu + 0.3 * v) < 1e-12
    assert relative(thin.product(v[0]), thin.Q_uu @ v[0]) < 1e-12
    whole = torch.linalg.eigvalsh(thin.Q_uu)
    largest = whole[whole.abs().argsort(descending=True)[:3]].sort().values
    assert relative(thin.eigenvalues(), largest) < 1e-10


def test_weight_decay_is_added_after_the_solve():
    field, gamma = TimedMLP(), 0.07

    def decay(t, x, params):
        return gamma / 2 * sum(p.square().sum() for p in params)

    dense = differential_programming(field, POINTS, (0.0, 1.0), cross_entropy, decay, **FINE)
    thin = low_rank(field, POINTS, (0.0, 1.0), loss_factors("cross_entropy"), **FINE)
    eye = torch.eye(20, dtype=DTYPE)
    assert relative(thin.product(eye, gamma=gamma), dense.Q_uu) < 1e-7


@pytest.mark.parametrize(("method", "order"), {"euler": 1, "midpoint": 2, "rk4": 4}.items())
def test_factors_converge_with_the_order_of_the_solver(method, order):
    y = OuterProducts(random(2, 4, seed=7), torch.ones(2))

    def solved(h):
        return low_rank(TimedMLP(), POINTS, (0.0, 1.0), y, method=method, options={"step_size": h})

    true = low_rank(TimedMLP(), POINTS, (0.0, 1.0), y, method="dopri8", rtol=1e-12, atol=1e-13)
    runs = [solved(1 / steps) for steps in (24, 48)]
    for name in ("q", "p"):
        errors = [relative(getattr(run, name), getattr(true, name)) for run in runs]
        assert observed_orders(errors)[0] > order - 0.3, (name, errors)


def test_black_box_method():
    solver = {"method": "implicit_adams", "options": {"step_size": 1 / 128}}
    thin = low_rank(TimedMLP(), POINTS, (0.0, 1.0), loss_factors("cross_entropy"), **solver)
    assert relative(thin.Q_uu, mlp_truth(cross_entropy)["ggn"][4:, 4:]) < 1e-7


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"must be \[R, 4\]"):
        low_rank(TimedMLP(), POINTS, (0.0, 1.0), OuterProducts(torch.ones(1, 3), torch.ones(1)))
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        matrix_factors(torch.ones(2, 3))
    with pytest.raises(ValueError, match="not symmetric"):
        matrix_factors(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="rank = 3"):
        matrix_factors(torch.eye(2), rank=3)
    with pytest.raises(ValueError, match="scale = 0"):
        gradient_factor(cross_entropy, 0.0)
    with pytest.raises(ValueError, match="'batch'"):
        loss_factors("cross_entropy", reduction="batch")
