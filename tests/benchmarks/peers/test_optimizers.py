"""Amortisation of an iteration over the refreshes of an optimizer, and the number of rounds."""

import pytest

from benchmarks.peers.engines import FEWEST, MOST, left_out, rounds
from benchmarks.peers.optimizers import amortised


def test_steps_are_shared_out_over_the_iterations_between_refreshes():
    times = {"gradient": [1.0, 2.0], "soap/steps": [0.5, 0.5]}
    assert amortised(times, {"soap": 10}) == {"soap": pytest.approx([1.05, 2.05])}


def test_refresh_counts_once_in_its_interval():
    times = {"snopt/plain": [1.0], "snopt/refresh": [3.0]}
    assert amortised(times, {"snopt": 4}) == {"snopt": [1.5]}


def test_what_has_no_refresh_costs_its_plain_iteration_and_what_could_not_run_is_left_out():
    assert amortised({"optax/plain": [2.0]}, {"optax": 1, "singd": 10}) == {"optax": [2.0]}


def test_rounds_fit_the_budget_within_bounds():
    assert rounds(4.0, 20.0) == 5
    assert rounds(100.0, 20.0) == FEWEST
    assert rounds(0.01, 20.0) == MOST


def test_what_is_left_out_has_a_reason():
    assert left_out("image", "diffrax_backsolve")
    assert left_out("image", "diffrax_checkpoint") is None
