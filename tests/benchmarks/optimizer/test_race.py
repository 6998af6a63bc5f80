"""The race: what a record is tied to, what is not run twice, and the table."""

import json
import math
from dataclasses import asdict

import pytest
import torch

import snopt
from benchmarks.command import parse
from benchmarks.optimizer import race, tasks
from benchmarks.optimizer.standings import final_loss, reached, standings
from snopt.models.fields import TanhField

FLAGS = "--split tune --tasks digits --methods snopt adam --rates 0.01 0.1 --seeds 1 --scale smoke"


def told(flags):
    return parse("benchmarks.optimizer", flags.split())[1]


def test_splits_share_neither_tasks_nor_seeds():
    assert len(tasks.SPLITS["tune"]) + len(tasks.SPLITS["report"]) >= 8
    assert not set(tasks.SPLITS["tune"]) & set(tasks.SPLITS["report"])
    assert not set(tasks.SEEDS["tune"]) & set(tasks.SEEDS["report"])


def test_nothing_is_run_twice_and_a_lost_run_is_made_again(tmp_path, monkeypatch, capsys):
    made, out = [], tmp_path / "race.json"
    monkeypatch.setattr(race, "run", lambda entry: made.append(entry.key) or record([1.0]))
    chosen = told(f"{FLAGS} --updates 2 --out {out}")
    race.main(chosen)
    assert len(made) == len(set(made)) == 4
    race.main(chosen)
    assert len(made) == 4
    kept = json.loads(out.read_text())
    del kept[made[2]]
    out.write_text(json.dumps(kept))
    race.main(chosen)
    assert made[4:] == [made[2]]
    assert set(json.loads(out.read_text())) == set(made)


def test_run_that_is_killed_leaves_the_others(tmp_path, monkeypatch):
    out, number = tmp_path / "race.json", iter(range(9))

    def run(entry):
        if next(number) == 2:
            raise KeyboardInterrupt
        return record([1.0])

    monkeypatch.setattr(race, "run", run)
    with pytest.raises(KeyboardInterrupt):
        race.main(told(f"{FLAGS} --updates 2 --out {out}"))
    assert len(json.loads(out.read_text())) == 2


def test_key_changes_with_budget_settings_and_our_source(monkeypatch):
    def keys(flags):
        return {entry.key for entry in race.entries(told(flags))}

    base = keys(f"{FLAGS} --updates 2")
    assert base == keys(f"{FLAGS} --updates 2")
    for other in (f"{FLAGS} --updates 3", f"{FLAGS} --seconds 2"):
        assert not base & keys(other)
    assert not base & keys(f"{FLAGS.replace('snopt adam', 'snopt:momentum=0.5')} --updates 2")
    monkeypatch.setattr(race, "source_of", lambda m: "changed" if m.startswith("snopt") else "")
    assert len(base & keys(f"{FLAGS} --updates 2")) == 2


def test_task_of_the_other_split_is_refused():
    with pytest.raises(SystemExit, match="mnist32 is no task of"):
        race.entries(told("--split tune --tasks mnist32"))


def test_method_without_rates_is_refused():
    with pytest.raises(SystemExit, match="give it --rates"):
        race.entries(told("--split tune --methods lbfgs"))


@pytest.mark.parametrize("budget", ["--updates 4", "--seconds 0.2"])
def test_run_keeps_to_its_budget(budget):
    (entry,) = race.entries(told(f"{FLAGS.replace('0.01 0.1', '0.01')} {budget}"))[:1]
    found = race.run(entry)
    assert found["status"] == "finished"
    assert found["updates"] == 4 if "updates" in budget else 0.2 <= found["seconds"] < 2.0
    assert found["evaluations"] >= 6 * found["updates"]
    assert found["curve"][-1]["updates"] == found["updates"]
    assert "valid" in found
    assert "test" not in found


def test_only_the_reported_split_looks_at_test_examples(monkeypatch):
    monkeypatch.setitem(tasks.SPLITS["report"], "again", tasks.Task("digits", 1))
    flags = "--split report --tasks again --methods adam --rates 0.01 --seeds 1 --scale smoke"
    (entry,) = race.entries(told(f"{flags} --updates 1"))
    assert "test" in race.run(entry)


def test_solve_that_does_not_end_is_broken_off():
    block = snopt.NeuralODE(TanhField(1))
    meter = race.Meter(block, limit=-1.0)
    block(torch.ones(1, 1))  # outside of training nothing is counted
    assert meter.evaluations == 0
    with pytest.raises(race.BrokenOff), meter:
        block(torch.ones(1, 1))


# -------------------------------------------------------------------------------------- table


def record(losses, method="adam", lr=0.1, valid=1.0, status="finished", seed=0):
    curve = [
        {"updates": i, "seconds": float(i), "evaluations": 6 * i, "loss": loss}
        for i, loss in enumerate(losses, start=1)
    ]
    experiment = {"optimizer": {"lr": lr}, "train": {"seed": seed}}
    return {
        "entry": {"split": "tune", "task": "t", "method": method, "experiment": experiment},
        "status": status,
        "updates": len(losses),
        "seconds": float(len(losses)),
        "evaluations": 6 * len(losses),
        "metric": "accuracy",
        "curve": curve,
        "valid": {"loss": valid, "accuracy": 0.5},
    }


def test_final_loss_is_a_mean_over_the_last_points_and_infinite_if_diverged():
    assert final_loss([record([9, 9, 1, 1, 1, 1, 1])]) == 1.0
    assert final_loss([record([1.0]), record([1.0], status="diverged: nan")]) == math.inf
    assert final_loss([record([None])]) == math.inf


def test_target_is_reached_by_the_smoothed_loss():
    assert reached(record([4.0, 2.0, 0.0]), 3.0) == (2, 2.0)
    assert reached(record([4.0, 2.0, 0.0]), 1.0) is None


def test_rate_is_chosen_by_validation_and_rivals_are_the_others():
    runs = [
        record([5.0, 3.0], "snopt", 0.1, valid=0.2),
        record([9.0, 9.0], "snopt", 0.3, valid=0.9),
        record([6.0, 6.0], "adam", 0.1, valid=0.5),
    ]
    header, _, ours, theirs = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in standings(runs).splitlines()
    )
    row = dict(zip(header, ours, strict=True))
    assert (row["rate"], row["final loss"], row["worst over rates"]) == ("0.1", "4", "9")
    assert (row["CPU s to rivals' best"], row["updates to it"]) == ("1", "1")
    assert dict(zip(header, theirs, strict=True))["CPU s to rivals' best"] == "–"


def test_entry_can_be_written():
    (entry,) = race.entries(told(f"{FLAGS.replace('0.01 0.1', '0.01')} --updates 2"))[:1]
    assert json.loads(json.dumps(asdict(entry)))["budget"] == {"unit": "updates", "amount": 2}
