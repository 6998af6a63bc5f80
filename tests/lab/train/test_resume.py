"""A run that was stopped and resumed equals the one that was not, bit for bit."""

from dataclasses import replace

import pytest
import torch

from snopt.lab.train import RunFolderError, read_records, train
from tests.lab.train.problems import (
    CONFIG,
    Moons,
    assert_same_records,
    assert_same_state,
    crash_at,
    interrupt_at,
    make_parts,
    timeless,
)

KINDS = [
    "snopt", "amortized", "adam", "sgd", "lbfgs", "mixed", "horizon", "scheduled",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_equals_uninterrupted(tmp_path, kind):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finished = train(Moons(), make_parts(kind), CONFIG, whole)
    # Once politely, between checkpoints; once by a crash, which loses iterations 9 and 10.
    first = train(Moons(), make_parts(kind), CONFIG, stopped, listeners=[interrupt_at(6)])
    assert (first.status, first.iteration, first.exit_code) == ("interrupted", 6, 130)
    with pytest.raises(RuntimeError, match="a crash"):
        train(
            Moons(), make_parts(kind), CONFIG, stopped, resume=True, listeners=[crash_at(10)]
        )  # fmt: skip
    assert read_records(stopped)[-1]["status"] == "failed"
    last = train(Moons(), make_parts(kind), CONFIG, stopped, resume=True)
    assert (finished.status, last.status) == ("finished", "finished")
    assert_same_state(whole, stopped)
    assert_same_records(whole, stopped)
    starts = [r["resumed_from"] for r in read_records(stopped) if r["kind"] == "start"]
    assert starts == [None, 6, 8]


def test_training_moves_the_weights_and_draws_noise(tmp_path):
    # What the test above compares would also be equal if nothing ever happened.
    one, other = tmp_path / "one", tmp_path / "other"
    train(Moons(), make_parts("adam"), CONFIG, one)
    train(Moons(), make_parts("adam"), replace(CONFIG, seed=1), other)
    with pytest.raises(AssertionError):
        assert_same_state(one, other)
    losses = [r["loss"] for r in read_records(one) if r["kind"] == "step"]
    assert losses[-1] < losses[0]


class NoisyMetrics(Moons):
    def metrics(self, model, batch):
        return {**super().metrics(model, batch), "noise": torch.rand(())}


def test_how_often_a_run_is_evaluated_does_not_change_what_is_learnt(tmp_path):
    often = replace(CONFIG, evaluate_every=1)
    train(NoisyMetrics(), make_parts("snopt"), CONFIG, tmp_path / "seldom")
    train(NoisyMetrics(), make_parts("snopt"), often, tmp_path / "often")
    losses = [
        [r["loss"] for r in read_records(tmp_path / name) if r["kind"] == "step"]
        for name in ("seldom", "often")
    ]
    assert losses[0] == losses[1]


def test_finished_run_can_be_extended(tmp_path):
    train(Moons(), make_parts("snopt"), CONFIG, tmp_path / "whole")
    train(Moons(), make_parts("snopt"), replace(CONFIG, iterations=8), tmp_path / "parts")
    outcome = train(Moons(), make_parts("snopt"), CONFIG, tmp_path / "parts", resume=True)
    assert outcome.iteration == 12
    assert_same_state(tmp_path / "whole", tmp_path / "parts")


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    before = train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    records = timeless(tmp_path)
    after = train(Moons(), make_parts("adam"), CONFIG, tmp_path, resume=True)
    assert timeless(tmp_path) == records
    assert (after.status, after.best, after.last) == (before.status, before.best, before.last)


def test_resuming_where_nothing_is_starts(tmp_path):
    outcome = train(Moons(), make_parts("adam"), CONFIG, tmp_path / "new", resume=True)
    assert outcome.iteration == 12


def test_folder_with_a_run_is_not_overwritten(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path)


@pytest.mark.parametrize("change", [{"seed": 1}, {"batch_size": 10}])
def test_resuming_with_another_order_of_data_is_refused(tmp_path, change):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    with pytest.raises(RunFolderError, match=next(iter(change))):
        train(Moons(), make_parts("adam"), replace(CONFIG, **change), tmp_path, resume=True)


@pytest.mark.parametrize(("kind", "said"), [("mixed", "SNOpt"), ("amortized", "does not fit")])
def test_resuming_with_other_parts_is_refused(tmp_path, kind, said):
    train(Moons(), make_parts("snopt"), CONFIG, tmp_path)
    records = timeless(tmp_path)
    with pytest.raises(RunFolderError, match=said):
        train(Moons(), make_parts(kind), CONFIG, tmp_path, resume=True)
    assert timeless(tmp_path) == records
    outcome = train(Moons(), make_parts("snopt"), CONFIG, tmp_path, resume=True)
    assert outcome.status == "finished"
    assert timeless(tmp_path) == records
