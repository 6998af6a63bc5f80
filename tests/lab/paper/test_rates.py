"""Seconds of a training from its evaluations."""

from dataclasses import replace

import numpy as np
import pytest

from snopt.lab.paper import rates
from snopt.lab.paper.archive import thinned
from snopt.lab.paper.arms import clock_notes, main_arms, trainings
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import MEASURED
from snopt.lab.paper.rates import Rate, measure_rates, rate_job, rate_of
from snopt.lab.paper.scales import configuration
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.train.folder import write_json
from tests.lab.paper.fake_runs import pretend, pretend_all

FOUND = {
    "evaluation": 0.01,
    "methods": {
        "adam": {"update": 0.5, "refresh": 0.0},
        "snopt": {"update": 0.6, "refresh": 2.0},
    },
}


def of_method(space, name):
    return next(arm for arm in main_arms(space, "mnist") if arm.name == name)


@pytest.fixture
def space(tmp_path):
    """Runs of SNOpt with other recorded seconds in each, and their measured costs."""
    space = Space(tmp_path, "cpu")
    for k, job in enumerate(trainings([of_method(space, "snopt")])):
        pretend(job, cost=1.0 + k)
    costs = of_method(space, "snopt").costs
    costs.prepare()
    write_json(costs.folder / MEASURED, FOUND)
    return space


def test_seconds_are_those_of_updates_evaluations_and_refreshes(space):
    arm = of_method(space, "snopt")
    table = arm.rate.along(arm.runs[0])
    # Twenty evaluations an update. Refreshes after 0, 5, 10, ... updates.
    assert table[:7, 1] == pytest.approx([2.8, 3.6, 4.4, 5.2, 6.0, 8.8, 9.6])
    assert len(table) == arm.config.train.iterations


def test_the_load_of_the_machine_does_not_matter(space):
    arm = of_method(space, "snopt")
    assert len(set(arm.cpu_seconds)) == 1
    assert len({run["seconds"][-1] for run in arm.compact["runs"]}) == 1
    assert len(set(replace(arm, costs=None).cpu_seconds)) == 3  # as recorded


def test_data_sets_without_measured_costs_are_named(space):
    assert clock_notes(replace(space, tasks=("mnist",))) == []
    [note] = clock_notes(replace(space, tasks=("mnist", "circle", "gas")))
    assert note.endswith(": Circle, Gas.")


def test_updates_that_were_not_kept_are_interpolated(space):
    whole = of_method(space, "snopt").rate.along(of_method(space, "snopt").runs[0])
    records = of_method(space, "snopt").jobs[0].folder / "metrics.jsonl"
    records.write_text(thinned(records.read_text(), 7))
    arm = of_method(space, "snopt")
    assert len(arm.runs[0].records.steps.table("loss")) < 30
    assert np.allclose(arm.rate.along(arm.runs[0]), whole)


def test_intervals_between_refreshes_are_those_of_the_run():
    config = configuration("mnist", "snopt_amortized", "cpu")
    found = {**FOUND, "methods": {"snopt_amortized": FOUND["methods"]["snopt"]}}
    job = type("Job", (), {"done": lambda self: True, "read": lambda self: found})()
    rate = rate_of(job, config)
    assert (rate.first, rate.every) == (100, 100)


def test_costs_are_measured_for_all_methods_at_once():
    configs = {name: recipe("digits", name, "smoke") for name in ("adam", "snopt")}
    found = measure_rates(configs, rounds=3)
    usual, more = found["evaluations"]
    assert more >= rates.MORE * usual
    assert found["methods"]["adam"]["refresh"] == 0.0
    assert found["methods"]["snopt"]["refresh"] > 0.0
    assert found["evaluation"] > 0.0


def test_without_a_measurement_seconds_are_as_recorded(tmp_path):
    space = Space(tmp_path, "cpu")
    pretend_all(trainings([of_method(space, "snopt")]))
    assert of_method(space, "snopt").rate is None
    assert (
        rate_of(rate_job(space, "mnist", ["snopt"]), configuration("mnist", "snopt", "cpu")) is None
    )
    assert of_method(space, "snopt").cpu_seconds == pytest.approx([120.0] * 3)


def test_rate_without_refreshes_ignores_their_schedule(space):
    arm = of_method(space, "snopt")
    plain = Rate(update=0.5, evaluation=0.01).along(arm.runs[0])
    assert plain[-1, 1] == pytest.approx(0.7 * len(plain))
