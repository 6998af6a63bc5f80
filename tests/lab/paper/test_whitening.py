"""Corollary 4: the preconditioned Neural ODE."""

import pytest
import torch

from snopt.adjoint import NeuralODE
from snopt.kronecker import KroneckerOptions
from snopt.lab.paper.items.whitening import LAYERS, NODES, SOLVER, along, factors, measure, problem
from snopt.optim import SNOpt

SIZE = (3, 5, 256)


def test_the_factors_are_those_of_the_optimizer():
    field, x0, costs = problem(*SIZE)
    found = along(field, {name: getattr(field, name) for name in LAYERS}, x0, costs["data"])
    block = NeuralODE(field, **SOLVER)
    options = KroneckerOptions(quadrature=NODES, averaging=0.0)
    optimizer = SNOpt(block, lr=0.0, curvature=options)
    costs["data"](block(x0)).backward()
    optimizer.step()
    for name in LAYERS:
        ours = optimizer.factors[f"field.{name}"]
        for mine, theirs in zip(factors(*found[name]), (ours.A, ours.B), strict=True):
            torch.testing.assert_close(mine / mine.norm(), theirs / theirs.norm())


@pytest.fixture(scope="module")
def rows():
    return measure(*SIZE)["rows"]


def test_the_preconditioned_update_is_gradient_descent_in_the_new_coordinates(rows):
    assert [(row["labels"], row["layer"]) for row in rows] == [
        (labels, layer) for labels in ("data", "drawn") for layer in LAYERS
    ]
    assert all(row["difference"] < 1e-10 for row in rows)


def test_inputs_are_centred_and_whitened_and_derivatives_whitened(rows):
    for row in rows:
        (before, after), (plain, white) = row["inputs"], row["derivatives"]
        assert before["mean"] > 0.1
        assert after["mean"] < 1e-10
        assert min(before["condition"], plain["condition"]) > 2
        assert after["condition"] == pytest.approx(1.0, abs=1e-6)
        assert white["condition"] == pytest.approx(1.0, abs=1e-6)


def test_derivatives_are_centred_in_expectation_if_labels_come_from_the_model(rows):
    by_labels = {row["labels"]: row["derivatives"][1]["mean"] for row in rows}
    # One draw of 256 labels: about 1/16.
    assert by_labels["drawn"] < 0.12 < by_labels["data"]
