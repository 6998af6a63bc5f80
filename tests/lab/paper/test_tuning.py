"""The rate that validation chooses."""

import json
import math
from dataclasses import replace

import pytest

from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import Training, failure
from snopt.lab.paper.scales import configuration
from snopt.lab.paper.tuning import final, points, tuned, tuning_jobs


def pretend(job: Training, value: float | None) -> None:
    """Write the record of a run that ended with a validation metric, or failed."""
    from snopt.lab.recipes.run import describe

    job.folder.mkdir(parents=True)
    if value is None:
        (job.folder / "failed.json").write_text('{"reason": "too stiff"}')
        return
    total = job.config.train.iterations
    (job.folder / "config.json").write_text(json.dumps(describe(job.config)))
    metrics = {"loss": 1.0, job.config.metric: value}
    records = [
        {"kind": "eval", "iteration": total, "seconds": 1.0, "split": "valid", "metrics": metrics},
        {"kind": "end", "iteration": total, "seconds": 1.0, "status": "finished"},
    ]
    (job.folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


@pytest.mark.parametrize(
    ("task", "values", "best"),
    [("mnist", (0.5, 0.9, None, 0.7), 1), ("circle", (1.5, None, 0.7, 0.9), 2)],
)
def test_the_best_validation_metric_chooses(tmp_path, task, values, best):
    space = Space(tmp_path, "cpu")
    jobs = tuning_jobs(space, task, "adam")
    for job, value in zip(jobs[:-1], values[:-1], strict=True):
        pretend(job, value)
    config, waiting = tuned(space, task, "adam")
    assert config is None
    assert waiting == jobs[-1:]
    pretend(jobs[-1], values[-1])
    config, waiting = tuned(space, task, "adam")
    assert waiting == []
    assert config.optimizer.lr == jobs[best].config.optimizer.lr
    # Nothing else of the tuning runs is taken over: the chosen run is tested, and of full length.
    assert config == replace(configuration(task, "adam", "cpu"), optimizer=config.optimizer)


def test_every_method_tries_as_many_rates():
    for scale in ("smoke", "cpu", "full"):
        for task in ("mnist", "spoken_arabic_digits", "circle"):
            methods = ("adam", "sgd", "snopt", "snopt_amortized")
            assert len({len(points(task, name, scale)) for name in methods}) == 1


def test_tuning_does_not_look_at_test_data(tmp_path):
    jobs = tuning_jobs(Space(tmp_path, "smoke"), "circle", "adam")
    jobs[0].do(lambda folder: ())
    assert '"test"' not in (jobs[0].folder / "metrics.jsonl").read_text()
    assert math.isfinite(final(jobs[0]))


def test_a_flow_that_cannot_be_solved_is_an_outcome(tmp_path):
    config = configuration("circle", "sgd", "smoke")
    config = replace(config, optimizer=replace(config.optimizer, lr=1e12))
    job = Training(config, tmp_path / "run")
    job.do(lambda folder: ())
    assert job.done()
    assert failure(job.folder) is not None or math.isnan(final(job))
