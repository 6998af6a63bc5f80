"""Arms of a comparison: how their end is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from snopt.lab.paper import Space
from snopt.lab.paper.arms import COLUMNS, Arm, arm_jobs, tuned_arms
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.scales import configuration
from snopt.lab.recipes.build import build_task
from snopt.lab.recipes.run import load, recorded
from snopt.lab.report.summary import Stat
from snopt.lab.train.step import evaluate
from tests.lab.paper.fake_runs import pretend, pretend_all


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


@pytest.mark.parametrize(
    ("task", "usual", "decayed", "chosen"),
    [
        ("mnist", 0.99, 0.98, 0.0),
        ("mnist", 0.98, 0.99, 0.1),
        ("circle", 0.5, 0.2, 0.1),
        ("circle", 0.2, 0.5, 0.0),
        ("mnist", 0.98, None, 0.0),  # one run is missing
    ],
)
def test_a_rival_has_the_better_weight_decay(tmp_path, task, usual, decayed, chosen):
    space = Space(tmp_path, "cpu")
    for _ in range(2):
        pretend_all(tuned_arms(space, task, ("muon",))[0].tuning)
    [arm] = tuned_arms(space, task, ("muon",))
    jobs = {job.config.optimizer.weight_decay: [] for job in arm_jobs([arm])}
    assert set(jobs) == {0.0, 0.1}
    for job in arm_jobs([arm]):
        jobs[job.config.optimizer.weight_decay].append(job)
    for job in jobs[0.0]:
        pretend(job, value=usual)
    for job in jobs[0.1][: None if decayed is not None else 2]:
        pretend(job, value=decayed or 0.99)
    [arm] = tuned_arms(space, task, ("muon",))
    assert arm.config.optimizer.weight_decay == chosen
    assert COLUMNS["weight decay"](arm) == f"{chosen:g}"
    assert arm.other.config.optimizer.weight_decay == 0.1 - chosen
    assert arm.title == arm.other.title == "Muon"


def test_a_method_that_was_not_run_is_a_note_and_no_row(tmp_path):
    space = Space(tmp_path, "cpu", ("mnist",))
    run, left = tuned_arms(space, "mnist", ("snopt", "adam"))
    for job in arm_jobs([run]):
        pretend(job)
    result = ITEMS["resnet"].result(space)
    # The residual network's arm has the same title with a suffix.
    assert [row[1] for row in result.tables[0].rows] == [run.title]
    assert f"Not run: {left.title}, residual network on MNIST; {left.title} on MNIST." in (
        result.notes
    )
