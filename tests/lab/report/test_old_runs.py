"""A run folder of version 0.1.0 is read, and resumed, by today's code."""

import shutil
from pathlib import Path

import pytest

from snopt.lab.cli.main import main
from snopt.lab.report import read_runs
from snopt.lab.train import read_records

OLD = Path(__file__).with_name("old_run")


def losses(folder):
    return [record["loss"] for record in read_records(folder) if record["kind"] == "step"]


def test_an_old_run_is_reported_without_problems(tmp_path):
    (run,) = read_runs([OLD])
    assert run.problems == []
    assert (run.task, run.optimizer, run.seed, run.state) == ("two_moons", "adam", 0, "finished")
    assert list(run.records.steps.iteration) == [1, 2, 3, 4]
    assert main(["report", str(OLD), "-o", str(tmp_path / "page.html")]) == 0
    assert "two_moons" in (tmp_path / "page.html").read_text("utf-8")


def test_an_old_run_is_resumed_as_if_it_had_not_stopped(tmp_path):
    resumed, whole = tmp_path / "resumed", tmp_path / "whole"
    shutil.copytree(OLD / "adam-seed0", resumed)
    assert main(["train", "--resume", str(resumed), "--iterations", "6", "--quiet"]) == 0
    settings = ["model.width=4", "train.evaluate_every=2"]
    words = ["two_moons", "--optimizer", "adam", "--scale", "smoke", "--iterations", "6", "--quiet"]
    assert main(["train", *words, "-o", str(whole), "--set", *settings]) == 0
    assert losses(resumed) == pytest.approx(losses(whole), rel=1e-4)
