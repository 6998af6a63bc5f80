"""Several optimizers on one task."""

import sys

import pytest

from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.run import compare, schedule, troubles
from snopt.lab.train import Outcome, read_records

# The package exports a function of the same name.
MODULE = sys.modules["snopt.lab.recipes.run"]
CONFIGS = [recipe("digits", name, "smoke") for name in ("snopt", "adam", "sgd")]


def test_each_seed_begins_with_another_optimizer(tmp_path):
    runs = schedule(CONFIGS, 3, tmp_path)
    order = [(run.config.train.seed, run.config.optimizer.name) for run in runs]
    assert order[0::3] == [(0, "snopt"), (1, "adam"), (2, "sgd")]
    assert len(set(order)) == 9
    assert runs[0].folder == tmp_path / "digits" / "snopt-seed0"


def test_all_see_the_same_first_batch_from_the_same_weights(tmp_path):
    done = compare(schedule(CONFIGS, 1, tmp_path))
    steps = [
        [record for record in read_records(run.folder) if record["kind"] == "step"]
        for run, _ in done
    ]
    assert len({records[0]["loss"] for records in steps}) == 1
    assert len({records[-1]["loss"] for records in steps}) == 3


def test_complete_runs_are_read_and_not_repeated(tmp_path, monkeypatch):
    runs = schedule(CONFIGS[:1], 1, tmp_path)
    (first,) = compare(runs)
    monkeypatch.setattr(MODULE, "run", lambda *_, **__: pytest.fail("it ran again"))
    (second,) = compare(runs)
    assert second[1].best == first[1].best


def test_an_interruption_ends_the_comparison(tmp_path, monkeypatch):
    monkeypatch.setattr(MODULE, "run", lambda *_, **__: Outcome("interrupted", 1, 0.1))
    done = compare(schedule(CONFIGS, 2, tmp_path))
    assert len(done) == 1
    assert troubles(done) == ["snopt, seed 0: interrupted"]


def test_runs_that_diverged_are_told(tmp_path):
    runs = schedule(CONFIGS[:2], 1, tmp_path)
    outcomes = [Outcome("finished", 3, 1.0), Outcome("diverged", 2, 0.5)]
    assert troubles(list(zip(runs, outcomes, strict=True))) == ["adam, seed 0: diverged"]
