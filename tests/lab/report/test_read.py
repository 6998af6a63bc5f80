import json
import os
import random

import pytest

from snopt.lab.report import build_html, read_runs
from tests.lab.report.fabricate import PICTURES, lines_of, write_comparison, write_run


def test_parents_and_run_folders_are_found_once_and_sorted(tmp_path):
    root = write_comparison(tmp_path)
    runs = read_runs([root / "spirals" / "sgd-seed0", root, root / "spirals"])
    names = [run.folder.name for run in runs]
    assert names[0] == "sgd-seed0"
    assert names[1:] == ["adam-seed0", "adam-seed1", "sgd-seed1", "snopt-seed0", "snopt-seed1"]


def test_a_whole_run_has_no_problems_and_tells_what_it_is(tmp_path):
    folder = write_run(tmp_path, "adam", 3, pictures=PICTURES)
    [run] = read_runs([folder])
    assert run.problems == []
    assert (run.task, run.optimizer, run.seed, run.state) == ("spirals", "adam", 3, "finished")
    assert run.command == "snopt train spirals --optimizer adam"
    assert [picture.kind for picture in run.pictures] == ["grid", "paths", "paths", "points"]


def test_names_come_from_the_folder_when_the_config_is_gone(tmp_path):
    folder = write_run(tmp_path, "adam", 3)
    (folder / "config.json").unlink()
    (folder / "environment.json").write_text("[]", "utf-8")
    [run] = read_runs([folder])
    assert (run.task, run.optimizer, run.seed) == ("spirals", "adam", 3)
    assert run.problems == [
        "config.json is missing",
        "environment.json is damaged: not a JSON object",
    ]


def test_a_label_stands_for_the_optimizer(tmp_path):
    [run] = read_runs([write_run(tmp_path, config={"label": "ours", "optimizer": {"name": "x"}})])
    assert run.optimizer == "ours"


def test_missing_and_empty_folders_are_told(tmp_path):
    runs = read_runs([tmp_path / "nowhere", tmp_path])
    assert [run.problems for run in runs] == [["no such folder"], ["contains no run folder"]]
    assert not any(run.is_run for run in runs)


def test_a_run_without_an_end_is_unfinished_and_one_without_lines_has_no_records(tmp_path):
    cut = write_run(tmp_path, "adam", 0, lines=lines_of()[:-1])
    empty = write_run(tmp_path, "adam", 1, lines=[{"kind": "start"}])
    runs = read_runs([cut, empty])
    assert [run.state for run in runs] == ["unfinished", "no records"]
    assert "no end record: the run is still running, or was killed" in runs[0].problems


def test_a_failure_and_left_out_updates_are_told_in_their_own_words(tmp_path):
    step = {"kind": "step", "iteration": 1, "seconds": 1.0, "loss": None, "skipped": "loss is nan"}
    end = {"kind": "end", "status": "failed", "message": "disk full"}
    [run] = read_runs([write_run(tmp_path, lines=[step, end])])
    assert run.state == "failed"
    assert run.problems == [
        "skipped updates: 1 (the first at iteration 1: loss is nan)",
        "failed: disk full",
    ]


def test_pictures_that_cannot_be_drawn_are_told(tmp_path):
    pictures = {"a": {"kind": "sculpture"}, "b": {"kind": "points", "points": [[0]]}}
    folder = write_run(tmp_path, pictures=pictures)
    (folder / "pictures" / "c.json").write_text("{", "utf-8")
    [run] = read_runs([folder])
    assert run.pictures == []
    assert [problem.split()[0] for problem in run.problems] == [
        "pictures/a.json", "pictures/b.json", "pictures/c.json",
    ]  # fmt: skip


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_told(tmp_path):
    folder = write_run(tmp_path)
    (folder / "metrics.jsonl").chmod(0)
    [run] = read_runs([folder])
    assert run.problems == ["metrics.jsonl cannot be read: Permission denied"]


def test_a_folder_in_place_of_a_file_is_told(tmp_path):
    folder = write_run(tmp_path)
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    [run] = read_runs([folder])
    assert run.problems == ["metrics.jsonl cannot be read: Is a directory"]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, repeat or wipe a part of a file."""
    place = rng.randrange(len(data))
    span = rng.randrange(1, 200)
    noise = bytes(rng.randrange(256) for _ in range(span))
    return rng.choice(
        [
            data[:place],
            data[:place] + noise + data[place + span :],
            data[:place] + data[place + span :],
            data[:place] + data[max(0, place - span) :],
            data[:place] + bytes(span) + data[place + span :],
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_stops_a_report(tmp_path, seed):
    rng = random.Random(seed)
    folder = write_run(tmp_path, "snopt", 0, pictures=PICTURES, horizon=True)
    write_run(tmp_path, "adam", 0)
    for path in sorted(folder.rglob("*.json*")):
        path.write_bytes(damaged(path.read_bytes(), rng))
    runs = read_runs([tmp_path])
    assert "adam" in build_html(runs, "damaged")


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [[]], True, 1e999, -1, {"name": 3}])
@pytest.mark.parametrize("key", ["task", "optimizer", "seed", "metric", "mode", "train", "label"])
def test_any_value_in_a_config_can_be_reported(tmp_path, key, value):
    folder = write_run(tmp_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {key: value}), "utf-8")
    assert "<h2>Runs</h2>" in build_html(read_runs([folder]), "odd")
