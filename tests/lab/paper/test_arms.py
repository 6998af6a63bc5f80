"""Arms of a comparison: how their end is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from snopt.lab.paper import Space
from snopt.lab.paper.arms import COLUMNS, Arm
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.scales import configuration
from snopt.lab.recipes.build import build_task
from snopt.lab.recipes.run import load, recorded
from snopt.lab.report.summary import Stat
from snopt.lab.train.step import evaluate


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Stat(0.5, 0.01, 3), "50.00 ± 1.00"),
        (Stat(0.5, 0.0, 1), "50.00 (1 of 3 seeds)"),
        (None, "-"),
    ],
)
def test_a_mean_over_fewer_seeds_than_were_run_says_so(monkeypatch, found, text):
    monkeypatch.setattr(Arm, "finals", found)
    arm = Arm(Space(Path(), "cpu"), "adam", configuration("mnist", "adam", "cpu"))
    assert COLUMNS["test"](arm) == COLUMNS["test accuracy, %"](arm) == text


def test_at_scale_cpu_the_best_model_by_validation_is_tested(tmp_path):
    config = configuration("circle", "adam", "cpu", iterations=2)
    data = replace(config.data, valid_examples=50, test_examples=60)
    # So high a rate that the untrained model is the best one.
    optimizer = replace(config.optimizer, lr=0.3)
    job = Training(replace(config, data=data, optimizer=optimizer), tmp_path)
    job.do(lambda folder: ())
    assert job.done()
    assert not (tmp_path / "pictures").exists()
    found = job.best()
    last = recorded(job.config, tmp_path).last["test"]
    task, loaded = build_task(job.config), load(tmp_path)
    assert loaded.iteration == 0
    assert found == evaluate(task, loaded.model, task.test, batch_size=1000, seed=0)
    assert found["nll"] < last["nll"]
    # A process that died before the test does not train again.
    records = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "best.json").unlink()
    assert not job.complete()
    job.do(lambda folder: ())
    assert job.best() == found
    assert (tmp_path / "metrics.jsonl").read_bytes() == records
