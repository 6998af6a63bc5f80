"""One experiment and its folder."""

import json

import pytest
import torch

from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.run import experiment_of, lengthened, recorded, run
from snopt.lab.recipes.settings import with_settings

SMOKE = recipe("digits", "adam", "smoke")


def test_a_run_folder_says_how_to_repeat_the_run(tmp_path):
    outcome = run(SMOKE, tmp_path / "run")
    assert (outcome.status, outcome.iteration) == ("finished", 3)
    assert experiment_of(tmp_path / "run") == SMOKE
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (content["task"], content["optimizer"], content["seed"]) == ("digits", "adam", 0)
    assert (tmp_path / "run" / "pictures" / "flow.json").exists()


def test_the_outcome_can_be_read_back(tmp_path):
    assert recorded(SMOKE, tmp_path / "run") is None
    outcome = run(SMOKE, tmp_path / "run")
    again = recorded(SMOKE, tmp_path / "run")
    assert (again.status, again.iteration, again.best) == ("finished", 3, outcome.best)
    assert again.last["test"] == pytest.approx(outcome.last["test"])


def test_another_experiments_folder_is_not_taken_for_ours(tmp_path):
    run(SMOKE, tmp_path / "run")
    with pytest.raises(ValueError, match="other settings"):
        recorded(with_settings(SMOKE, ["lr=0.5"]), tmp_path / "run")


def test_a_lengthened_run_goes_on(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(lengthened(SMOKE, 6, None), whole)
    run(SMOKE, cut)
    outcome = run(lengthened(experiment_of(cut), 6, None), cut, resume=True)
    assert outcome.iteration == 6
    models = [
        torch.load(folder / "checkpoints" / "step-00000006.pt", weights_only=True)["model"]
        for folder in (whole, cut)
    ]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        experiment_of(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        experiment_of(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="names no experiment"):
        experiment_of(tmp_path)
