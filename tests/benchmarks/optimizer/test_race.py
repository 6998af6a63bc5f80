"""The race: which runs it plans, what is not run twice, and the table."""

import json
import shutil

import pytest

from benchmarks.command import parse
from benchmarks.optimizer import race, tasks
from benchmarks.optimizer.standings import Entry, final_loss, first_at, standings
from snopt.lab.paper import jobs
from snopt.lab.paper.jobs import Training

FLAGS = "--split tune --tasks digits --methods snopt adam --rates 0.01 0.1 --seeds 1 --scale smoke"


def told(flags):
    return parse("benchmarks.optimizer", flags.split())[1]


def test_splits_share_neither_tasks_nor_seeds():
    assert not set(tasks.SPLITS["tune"]) & set(tasks.SPLITS["report"])
    assert not set(tasks.SEEDS["tune"]) & set(tasks.SEEDS["report"])


def test_nothing_is_run_twice_and_a_lost_run_is_made_again(tmp_path, capsys):
    chosen = told(f"{FLAGS} --updates 2 --out {tmp_path}")
    race.main(chosen)
    assert capsys.readouterr().out.count(": finished") == 4
    (lost, *_) = tmp_path.glob("**/metrics.jsonl")
    shutil.rmtree(lost.parent)
    jobs._done.clear()  # as in a new process
    race.main(chosen)
    assert capsys.readouterr().out.count(": finished") == 1


@pytest.mark.parametrize("flags", ["--tasks mnist32", "--methods lbfgs"])
def test_task_of_the_other_split_and_method_without_rates_are_refused(flags):
    with pytest.raises(SystemExit, match=r"mnist32 is no task of|lbfgs has no rates"):
        race.entries(told(f"--split tune {flags}"))


@pytest.mark.parametrize("budget", ["--updates 4", "--seconds 0.2"])
@pytest.mark.parametrize("split", ["tune", "report"])
def test_run_keeps_to_its_budget_and_only_the_reported_split_is_tested(
    split, budget, tmp_path, monkeypatch
):
    monkeypatch.setitem(tasks.SPLITS[split], "again", tasks.Task("digits", 1))
    flags = f"--split {split} --tasks again --methods snopt:momentum=0.5 --rates 0.01 --seeds 1"
    chosen = told(f"{flags} --scale smoke {budget} --out {tmp_path}")
    race.main(chosen)
    [entry] = race.entries(chosen)
    updates, seconds, _ = entry.curve[-1]
    assert updates == 4 if "updates" in budget else 0.2 <= seconds < 2.0
    assert entry.evaluations >= 6
    assert ("test" in entry.run.records.final) == (split == "report")


# -------------------------------------------------------------------------------------- table


@pytest.fixture
def pretend(tmp_path):
    """Write the record of a run, an update a second; return its entry."""

    def entry(losses, method="adam", lr=0.1, valid=1.0, status="finished"):
        budget = "updates", len(losses)
        task = tasks.SPLITS["tune"]["digits"]
        config = tasks.experiment(task, method, lr, 10, budget, "tune", "smoke")
        folder = tmp_path / f"{method}-{lr}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        both = [{"iteration": i, "seconds": i} for i in range(len(losses) + 1)]
        counts = {"nfe_forward": 6, "nfe_backward": 0}
        steps = [
            {"kind": "step", **place, "cpu_seconds": place["seconds"], "loss": loss, **counts}
            for place, loss in zip(both[1:], losses, strict=True)
        ]
        final = {"valid": {"loss": valid, "accuracy": 0.5}}
        end = {"kind": "end", "status": status, "final": final, **both[-1]}
        text = "".join(json.dumps(line) + "\n" for line in [*steps, end])
        (folder / "metrics.jsonl").write_text(text)
        return Entry("tune", "t", method, Training(config, folder))

    return entry


def test_final_loss_is_a_mean_over_a_tenth_of_the_budget_and_infinite_if_diverged(pretend):
    assert final_loss([pretend([9.0] * 18 + [3.0, 1.0])]) == 2.0
    assert final_loss([pretend([1.0]), pretend([1.0], status="diverged")]) == float("inf")
    assert final_loss([pretend([None])]) == float("inf")


def test_target_is_reached_by_the_smoothed_loss(pretend):
    falling = [9.0] * 17 + [4.0, 2.0, 0.0]
    assert first_at([pretend(falling)], 3.0) == ["19", "19"]
    assert first_at([pretend(falling)], 0.5) == ["–", "–"]
    assert first_at([pretend(falling), pretend([9.0])], 3.0) == ["1 of 2", "–"]


def test_rate_is_chosen_by_validation_and_rivals_are_the_others(pretend):
    runs = [
        pretend([7.0, 4.0], "snopt", 0.1, valid=0.2),
        pretend([9.0, 9.0], "snopt", 0.3, valid=0.9),
        pretend([6.0, 6.0], "adam", 0.1, valid=0.5),
    ]
    header, _, ours, theirs = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in standings(runs).splitlines()
    )
    row = dict(zip(header, ours, strict=True))
    assert (row["rate"], row["final loss"], row["worst over rates"]) == ("0.1", "4", "9")
    assert (row["CPU s to rivals' best"], row["updates to it"]) == ("2", "2")
    assert dict(zip(header, theirs, strict=True))["CPU s to rivals' best"] == "–"
