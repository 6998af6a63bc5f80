"""Sweeps: plans, failures, and processes that die."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from snopt.lab.optimizers import grid
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.settings import with_settings
from snopt.lab.recipes.sweep import (
    RETRIES,
    SweepConfig,
    note,
    open_study,
    results,
    tally,
    work,
)
from snopt.lab.train import Outcome
from snopt.lab.train.folder import FolderLock
from tests.lab.recipes.sweep_worker import configured

pytest.importorskip("optuna")

MODULE = sys.modules["snopt.lab.recipes.run"]
sweep_module = sys.modules["snopt.lab.recipes.sweep"]


def outcome(best: float | None, status: str = "finished") -> Outcome:
    return Outcome(status, 1, 0.1, best=best, message="as told")


def pretend(monkeypatch: pytest.MonkeyPatch, ends: object) -> list[float]:
    """Replace training by a function of the learning rate; return the rates that were tried."""
    tried: list[float] = []

    def run(config, folder, **_):
        tried.append(config.optimizer.lr)
        return ends(config.optimizer.lr)

    monkeypatch.setattr(MODULE, "run", run)
    return tried


def test_a_sweep_plans_the_papers_grid_or_a_part_of_it(tmp_path):
    config = replace(configured(tmp_path), trials=None)
    assert sorted(config.plan(), key=str) == sorted(grid("adam"), key=str)
    few = replace(config, trials=4).plan()
    assert few == config.plan()[:4]
    assert max(point["lr"] for point in few) == 0.05  # not the lowest rates only
    assert min(point["lr"] for point in few) == 1e-4


def test_a_sweep_tries_every_point_and_finds_the_best(tmp_path, monkeypatch):
    tried = pretend(monkeypatch, lambda lr: outcome(-abs(lr - 3e-4)))
    config = configured(tmp_path, trials=7)
    study = open_study(config)
    work(config, study)
    assert sorted(tried) == sorted(point["lr"] for point in config.plan())
    assert tally(study)["COMPLETE"] == 7
    assert results(study)[0].params["lr"] == 3e-4


def test_failed_trials_are_recorded_with_their_reason_and_the_sweep_goes_on(tmp_path, monkeypatch):
    def ends(lr):
        if lr == 3e-4:
            raise RuntimeError("the disk is full")
        return outcome(None, "diverged") if lr == 5e-4 else outcome(0.5)

    pretend(monkeypatch, ends)
    config = configured(tmp_path, trials=9)
    study = open_study(config)
    work(config, study)
    count = tally(study)
    assert count == {"COMPLETE": 7, "FAIL": 2}
    notes = {trial.params["lr"]: note(trial) for trial in results(study)}
    assert notes[3e-4] == "RuntimeError: the disk is full"
    assert notes[5e-4] == "as told"


def test_a_second_process_joins_and_does_not_plan_again(tmp_path, monkeypatch):
    tried = pretend(monkeypatch, lambda lr: outcome(lr))
    config = configured(tmp_path, trials=4)
    work(config, open_study(config))
    work(config, open_study(config))
    assert len(tried) == 4


def test_a_sampler_makes_as_many_trials_as_were_asked_for(tmp_path, monkeypatch):
    tried = pretend(monkeypatch, lambda lr: outcome(lr))
    config = replace(configured(tmp_path, trials=5), search="tpe")
    work(config, open_study(config))
    assert len(tried) == 5
    assert len(set(tried)) == 5


def test_other_settings_do_not_join(tmp_path, monkeypatch):
    pretend(monkeypatch, lambda lr: outcome(lr))
    config = configured(tmp_path, trials=1)
    open_study(config)
    other = replace(config, base=with_settings(config.base, ["model.width=3"]))
    with pytest.raises(ValueError, match="started with other settings"):
        open_study(other)


def test_ctrl_c_puts_the_trial_back_into_the_queue(tmp_path, monkeypatch):
    pretend(monkeypatch, lambda lr: outcome(None, "interrupted"))
    config = configured(tmp_path, trials=2)
    study = open_study(config)
    with pytest.raises(KeyboardInterrupt):
        work(config, study)
    assert tally(study) == {"FAIL": 1, "WAITING": 1}
    tried = pretend(monkeypatch, lambda lr: outcome(lr))
    work(config, open_study(config))
    assert len(tried) == 2


def test_the_metric_of_a_density_is_minimised(tmp_path, monkeypatch):
    pretend(monkeypatch, lambda lr: outcome(lr))
    config = SweepConfig(recipe("circle", "adam", "smoke"), tmp_path, trials=4)
    study = open_study(config)
    work(config, study)
    assert results(study)[0].params["lr"] == 1e-4


def test_a_trial_whose_process_was_killed_is_taken_over(tmp_path):
    worker = Path(__file__).with_name("sweep_worker.py")
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    dying = subprocess.Popen([sys.executable, str(worker), str(tmp_path), "hang"], env=environment)
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "hanging").exists():
            assert time.monotonic() < until
            assert dying.poll() is None
            time.sleep(0.1)
        config = configured(tmp_path)
        study = open_study(config)
        before = tally(study)
        assert before == {"RUNNING": 1, "WAITING": 11}
    finally:
        os.kill(dying.pid, signal.SIGKILL)
        dying.wait()
    work(config, study)
    after = tally(study)
    assert after == {"COMPLETE": 12}
    # The lost attempt is on record too.
    assert [trial.state.name for trial in study.trials].count("FAIL") == 1
    assert len(study.trials) == 13


def test_a_process_that_died_before_its_first_sign_of_life_is_noticed(tmp_path, monkeypatch):
    tried = pretend(monkeypatch, lambda lr: outcome(lr))
    config = configured(tmp_path, trials=2)
    study = open_study(config)
    study.ask()  # takes a trial, and nothing more is heard of it
    assert tally(study)["RUNNING"] == 1
    work(config, study)
    assert len(tried) == 2
    assert tally(study)["COMPLETE"] == 2


def test_a_trial_killed_between_two_draws_is_run_again_at_its_own_point(tmp_path, monkeypatch):
    tried = pretend(monkeypatch, lambda lr: outcome(lr))
    config = configured(tmp_path, trials=3)
    study = open_study(config)
    lost = study.ask()
    lost.suggest_float("lr", 1e-5, 1.0, log=True)  # the weight decay is not drawn
    work(config, study)
    assert len(tried) == 3
    found = [trial.params for trial in results(study)]
    assert sorted(found, key=str) == sorted(config.plan(), key=str)


def test_a_process_that_keeps_dying_uses_up_the_retries_and_ctrl_c_does_not(tmp_path, monkeypatch):
    config = configured(tmp_path, trials=1)
    study = open_study(config)
    pretend(monkeypatch, lambda lr: outcome(None, "interrupted"))
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            work(config, study)
    for attempt in range(RETRIES + 1):
        sweep_module._requeue(config, study)
        assert study.ask().user_attrs["crashes"] == attempt
    work(config, study)
    assert tally(study)["FAIL"] == 1
    assert note(results(study)[0]) == "its process died"


def test_a_process_that_is_stalled_keeps_its_trial(tmp_path, monkeypatch):
    config = configured(tmp_path, trials=1)
    study = open_study(config)
    study.ask()
    with FolderLock(sweep_module._lock_folder(config, 0)):
        sweep_module._requeue(config, study)
        assert tally(study) == {"RUNNING": 1}
    sweep_module._requeue(config, study)
    assert tally(study) == {"WAITING": 1}


def test_processes_with_different_folders_do_not_share_a_study(tmp_path):
    config = replace(configured(tmp_path / "one"), storage=f"sqlite:///{tmp_path}/study.db")
    open_study(config)
    with pytest.raises(ValueError, match="started in another folder"):
        open_study(replace(config, out=tmp_path / "other"))


@pytest.mark.slow
def test_two_processes_share_twelve_trials_and_one_is_killed(tmp_path):
    worker = Path(__file__).with_name("sweep_worker.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, str(worker), str(tmp_path)]
    survivor, victim = (subprocess.Popen(command, env=environment) for _ in range(2))
    while len(list(tmp_path.glob("trial-*"))) < 3:
        time.sleep(0.05)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    assert survivor.wait(timeout=300) == 0
    study = open_study(configured(tmp_path))
    assert tally(study)["COMPLETE"] == 12
    assert (
        len({trial.user_attrs["plan"] for trial in study.trials if trial.value is not None}) == 12
    )
