"""Records of other code that this code repeats."""

import json
import math

import pytest
import torch

from snopt.lab.paper import Space, renewal
from snopt.lab.paper.jobs import FAILED, Training
from snopt.lab.paper.renewal import renew
from snopt.lab.paper.scales import configuration


@pytest.fixture
def space(tmp_path):
    return Space(tmp_path, "smoke")


@pytest.fixture
def job(space):
    """A short training that other code has made, it says."""
    job = Training(configuration("circle", "adam", "smoke"), space.run("circle", "adam", 0))
    job.do(lambda run: ())
    change(job, code="other")
    return job


def stamp_of(job):
    return json.loads((job.folder / "stamp.json").read_text())


def change(job, **stamp):
    (job.folder / "stamp.json").write_text(json.dumps({**stamp_of(job), **stamp}))


def test_a_record_that_this_code_repeats_is_current_again(space, job):
    assert not job.current()
    seconds, told = stamp_of(job)["seconds"], []
    assert renew(space, tell=told.append) == 1
    assert job.current()
    assert stamp_of(job)["earlier"] == [{"code": "other", "difference": 0.0}]
    assert stamp_of(job)["seconds"] == seconds
    assert told == ["circle, adam: 1 renewed, losses differ by 0 at most"]
    assert renew(space, tell=told.append) == 0  # nothing is left


def multiply_loss(job, place, factor):
    path = job.folder / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    [line for line in lines if line["kind"] == "step"][place]["loss"] *= factor
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("factor", "renewed"), [(1 + 1e-6, 1), (1.001, 0), (1.1, 0), (math.nan, 0)]
)
def test_another_loss_keeps_a_record_stale_and_rounding_does_not(space, job, factor, renewed):
    multiply_loss(job, -1, factor)
    told = []
    assert renew(space, tell=told.append) == renewed
    assert job.current() == bool(renewed)
    assert ("stale" in told[0]) != bool(renewed)


def test_other_settings_stay_stale(space, job):
    change(job, settings="others")
    assert renew(space, tell=[].append) == 0
    assert stamp_of(job)["code"] == "other"


def test_data_sets_that_are_not_selected_are_left_alone(space, job):
    assert renew(Space(space.root, "smoke", ("mnist",)), tell=[].append) == 0


def test_a_failed_training_is_renewed_with_one_that_did_not_fail(space, job):
    failed = Training(job.config, space.run("circle", "adam", 1))
    failed.prepare()
    change(failed, code="other")
    for name in ("config.json", "metrics.jsonl"):
        (failed.folder / name).write_bytes((job.folder / name).read_bytes())
    (failed.folder / FAILED).write_text('{"reason": "too stiff"}')
    assert renew(space, tell=[].append) == 2


def test_failures_alone_cannot_be_repeated(space, job):
    (job.folder / FAILED).write_text('{"reason": "too stiff"}')
    told = []
    assert renew(space, tell=told.append) == 0
    assert "all of its trainings failed" in told[0]


def chaotic(model, seed):
    """A change of weights that stands for the growth of rounding in a chaotic training."""
    generator = torch.Generator().manual_seed(seed)
    for param in model.parameters():
        param.data += 0.1 * torch.randn(param.shape, generator=generator)


@pytest.mark.parametrize(("place", "renewed"), [(-1, 1), (0, 0)])
def test_a_chaotic_training_may_differ_as_its_neighbours_do(
    space, job, monkeypatch, place, renewed
):
    monkeypatch.setattr(renewal, "_change_last_digits", chaotic)
    multiply_loss(job, place, 1.06)  # the first loss must be the same however rounding grows
    told = []
    assert renew(space, tell=told.append) == renewed
    assert ("6e-02" in told[0] or "0.06" in told[0]) == bool(renewed)


def test_a_neighbour_differs_by_one_digit_of_every_weight():
    model, same = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    same.load_state_dict(model.state_dict())
    renewal._change_last_digits(model, 1)
    for changed, param in zip(model.parameters(), same.parameters(), strict=True):
        assert not (changed == param).any()
        torch.testing.assert_close(changed, param, rtol=2e-7, atol=0)
