"""A run that was stopped and resumed equals the one that was not, bit for bit."""

from dataclasses import replace

import pytest
import torch

from snopt.lab.train import RunFolderError, load_checkpoint, read_records, train
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


def test_overwrite_deletes_the_run_and_nothing_else(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    identity = load_checkpoint(tmp_path)["run"]
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    train(Moons(), make_parts("sgd"), replace(CONFIG, iterations=5), tmp_path, overwrite=True)
    assert load_checkpoint(tmp_path)["iteration"] == 5
    assert load_checkpoint(tmp_path)["run"] != identity
    assert [r["kind"] for r in read_records(tmp_path)].count("start") == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(ValueError, match="exclude each other"):
        train(Moons(), make_parts("sgd"), CONFIG, tmp_path, overwrite=True, resume=True)


def test_run_with_a_mistake_does_not_delete_the_one_before(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    with pytest.raises(ValueError, match="batch_size"):
        train(Moons(), make_parts("adam"), replace(CONFIG, batch_size=0), tmp_path, overwrite=True)
    assert load_checkpoint(tmp_path)["iteration"] == 12


@pytest.mark.parametrize("iteration", [1, 2])
def test_start_that_crashed_does_not_refuse_the_next(tmp_path, iteration):
    with pytest.raises(RuntimeError, match="a crash"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[crash_at(iteration)])
    outcome = train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    assert outcome.status == "finished"
    assert [r["kind"] for r in read_records(tmp_path)].count("start") == 1


def test_run_that_diverged_before_a_checkpoint_is_a_result_and_kept(tmp_path):
    task = Moons()
    task.train.x[:] = torch.nan
    never = replace(CONFIG, checkpoint_every=100)
    assert train(task, make_parts("adam"), never, tmp_path).status == "diverged"
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path)


def test_config_of_somebody_else_is_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path)


def test_run_whose_config_is_lost_keeps_its_identity(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    identity = load_checkpoint(tmp_path)["run"]
    (tmp_path / "config.json").unlink()
    train(Moons(), make_parts("adam"), replace(CONFIG, iterations=13), tmp_path, resume=True)
    assert load_checkpoint(tmp_path)["run"] == identity


def test_folder_of_a_later_version_is_refused(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(RunFolderError, match="reads format 1"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path, resume=True)
