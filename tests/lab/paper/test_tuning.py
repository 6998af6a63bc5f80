"""The rate that validation chooses."""

import math
from dataclasses import replace

import pytest

from snopt.lab.paper.arms import main_arms, trainings, tuned_arms
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import Training, failure
from snopt.lab.paper.scales import configuration
from snopt.lab.paper.tuning import final, points, tuned, tuning_jobs
from tests.lab.paper import fake_runs


def pretend(job: Training, value: float | None) -> None:
    """Write the record of a run that ended with a validation metric, or failed."""
    fake_runs.pretend(job, value=value, fails=value is None)


@pytest.mark.parametrize(
    ("task", "values", "kept"),
    [("mnist", (0.5, 0.9, None, 0.7, 0.6), (1, 3)), ("circle", (1.5, None, 0.7, 0.9, 2.0), (2, 3))],
)
def test_halving_keeps_the_best_rates_and_tries_a_cosine_with_them(tmp_path, task, values, kept):
    space = Space(tmp_path, "cpu")
    first = tuning_jobs(space, task, "adam")
    assert [job.ready for job in first] == [True] * 5 + [False] * 4
    for job, value in zip(first[:5], values, strict=True):
        assert len(tuned(space, task, "adam")[1]) > 4
        pretend(job, value)
    jobs = tuning_jobs(space, task, "adam")
    rates = [jobs[k].config.optimizer.lr for k in kept]
    finalists = [(job.config.optimizer.lr, job.config.optimizer.cosine) for job in jobs[5:]]
    length = jobs[5].config.train.iterations
    assert finalists == [(lr, cosine) for lr in rates for cosine in (None, length)]
    assert all(job.ready for job in jobs)


@pytest.mark.parametrize(
    ("task", "first", "second"),
    [("mnist", 100, 250), ("svhn", 100, 200), ("miniboone", 30, 75), ("circle", 200, 400)],
)
def test_searches_make_a_tenth_and_a_quarter_of_the_updates_or_more(tmp_path, task, first, second):
    jobs = tuning_jobs(Space(tmp_path, "cpu"), task, "adam")
    assert [job.config.train.iterations for job in jobs] == [first] * 5 + [second] * 4


def test_among_equal_accuracies_the_cheapest_run_is_chosen(tmp_path):
    space = Space(tmp_path, "cpu")
    for job in tuning_jobs(space, "mnist", "adam")[:5]:
        pretend(job, job.config.optimizer.lr)
    finalists = tuning_jobs(space, "mnist", "adam")[5:]
    values, evaluations = (0.972, 0.968, 0.95, 0.971), (60, 20, 8, 40)
    for job, value, count in zip(finalists, values, evaluations, strict=True):
        # Seconds depend on the load of the machine, and do not count.
        fake_runs.pretend(job, value=value, evaluations=count, cost=1 / count)
    config, _ = tuned(space, "mnist", "adam")
    assert config.optimizer.lr == finalists[1].config.optimizer.lr
    assert config.optimizer.cosine is not None


def test_the_best_finalist_chooses_rate_and_schedule(tmp_path):
    space = Space(tmp_path, "cpu")
    for job in tuning_jobs(space, "mnist", "adam")[:5]:
        pretend(job, job.config.optimizer.lr)
    finalists = tuning_jobs(space, "mnist", "adam")[5:]
    for job, value in zip(finalists, (0.5, 0.9, None, 0.7), strict=True):
        pretend(job, value)
    config, waiting = tuned(space, "mnist", "adam")
    assert waiting == ()
    assert config.optimizer.lr == finalists[1].config.optimizer.lr
    # Nothing else of the tuning runs is taken over: the chosen run is tested, and of full length.
    assert config.optimizer.cosine == config.train.iterations == 1000
    assert config == replace(configuration("mnist", "adam", "cpu"), optimizer=config.optimizer)


def test_snopt_is_compared_with_its_defaults_and_tuned(tmp_path):
    arms = {arm.name: arm for arm in main_arms(Space(tmp_path, "cpu"), "mnist")}
    assert {"adam", "adamw", "sgd", "muon", "snopt_amortized", "snopt", "snopt_tuned"} <= set(arms)
    assert arms["snopt"].tuning == ()
    assert len(arms["snopt_tuned"].tuning) == len(arms["adam"].tuning) == 9
    runs = trainings([arms["snopt"], arms["adam"]])
    assert [run.ready for run in runs] == [True, False] * 1 + [False, True] + [True, False]


def test_methods_with_long_steps_make_fewer_updates_along_a_cosine_that_ends_with_them(tmp_path):
    space = Space(tmp_path, "cpu")
    for _ in range(2):
        for job in tuning_jobs(space, "mnist", "lbfgs"):
            if job.ready and not job.done():
                pretend(job, 0.5 + 0.1 * (job.config.optimizer.cosine is not None))
    [arm] = tuned_arms(space, "mnist", ("lbfgs",))
    assert arm.tuning == ()
    assert arm.config.optimizer.cosine == arm.config.train.iterations == 200


def test_every_method_tries_as_many_rates():
    for scale in ("smoke", "cpu", "full"):
        for task in ("mnist", "spoken_arabic_digits", "circle"):
            methods = ("adam", "adamw", "sgd", "muon", "soap", "snopt", "snopt_amortized")
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
