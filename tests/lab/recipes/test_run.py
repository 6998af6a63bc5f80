"""One experiment and its folder."""

import json
import shutil
import sys

import pytest
import torch

import snopt
from snopt.lab.cli.main import main
from snopt.lab.recipes.build import build_task
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.run import experiment_of, load, recorded, run
from snopt.lab.recipes.settings import with_settings
from snopt.lab.train import RunFolderError, train
from tests.lab.train.problems import CONFIG, Moons, make_parts, small_model

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
    with pytest.raises(RunFolderError, match="other settings"):
        recorded(with_settings(SMOKE, ["lr=0.5"]), tmp_path / "run")


def test_a_lengthened_run_goes_on(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(with_settings(SMOKE, ["train.iterations=6"]), whole)
    run(SMOKE, cut)
    outcome = run(with_settings(experiment_of(cut), ["train.iterations=6"]), cut, resume=True)
    assert outcome.iteration == 6
    models = [
        torch.load(folder / "checkpoints" / "step-00000006.pt", weights_only=True)["model"]
        for folder in (whole, cut)
    ]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_the_best_model_is_loaded_in_one_call_without_the_data(tmp_path, monkeypatch):
    outcome = run(with_settings(SMOKE, ["train.iterations=20"]), tmp_path / "run")
    with monkeypatch.context() as without:
        without.setattr(sys.modules["snopt.lab.recipes.build"], "load", None)
        loaded = snopt.lab.load(tmp_path / "run")
    assert loaded.metrics["accuracy"] == outcome.best
    assert loaded.config["task"] == "digits"
    task = build_task(SMOKE)
    with torch.no_grad():
        again = task.metrics(loaded.model, task.valid.batch(torch.arange(len(task.valid))))
    assert float(again["accuracy"]) == pytest.approx(outcome.best, abs=1e-6)
    assert load(tmp_path / "run", latest=True).iteration == 20


def test_the_model_of_another_task_is_given(tmp_path):
    task, parts = Moons(), make_parts("adam")
    train(task, parts, CONFIG, tmp_path)
    with pytest.raises(RunFolderError, match="pass it"):
        load(tmp_path)
    with pytest.raises(RunFolderError, match="does not fit"):
        load(tmp_path, torch.nn.Linear(2, 2))
    loaded = load(tmp_path, small_model(), latest=True)
    assert all(map(torch.equal, loaded.model.parameters(), parts.model.parameters()))


def test_a_run_without_a_checkpoint_has_no_model(tmp_path):
    run(SMOKE, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(RunFolderError, match="no model yet"):
        load(tmp_path)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(RunFolderError, match=r"no config\.json"):
        experiment_of(tmp_path)


ODD_CONFIGS = [
    "", "{", "[]", "null", "3", '"text"', "{}", '{"experiment": null}', '{"experiment": []}',
    '{"experiment": {}}', '{"experiment": {"task": 3}}', "[" * 100_000, "\udce4",
]  # fmt: skip
ODD_CHANGES = [
    ("task", None), ("optimizer", None), ("optimizer", "adam"), ("optimizer", {"name": "adam"}),
    ("optimizer", {"name": "adan", "lr": 1}), ("train", {"epochs": -1}), ("train", []),
    ("model", {}), ("colour", "red"),
]  # fmt: skip


def is_told_in_one_line(folder, capsys):
    """Resuming and comparing end well, or with one line that names the folder."""
    for words in (f"train --resume {folder}", COMPARE.format(folder.parents[1])):
        code = main([*words.split(), "--quiet"])
        err = capsys.readouterr().err
        assert code in (0, 1)
        if code == 1:
            assert str(folder) in err.splitlines()[0]
            assert len(err.splitlines()) == 2  # the second names --debug


COMPARE = "compare digits --optimizers adam --seeds 1 --scale smoke --out {}"


@pytest.fixture
def trained(tmp_path):
    folder = tmp_path / "digits" / "adam-seed0"
    run(SMOKE, folder)
    return folder


@pytest.mark.parametrize("content", ODD_CONFIGS, ids=range(len(ODD_CONFIGS)))
def test_a_damaged_configuration_is_told_in_one_line(trained, capsys, content):
    (trained / "config.json").write_text(content, "utf-8", "surrogateescape")
    is_told_in_one_line(trained, capsys)
    with pytest.raises(RunFolderError, match=r"config\.json"):
        experiment_of(trained)


@pytest.mark.parametrize(("name", "value"), ODD_CHANGES, ids=range(len(ODD_CHANGES)))
def test_an_odd_setting_is_told_in_one_line(trained, capsys, name, value):
    content = json.loads((trained / "config.json").read_text())
    content["experiment"][name] = value
    (trained / "config.json").write_text(json.dumps(content))
    is_told_in_one_line(trained, capsys)


ODD_RECORDS = [
    b"", b"{", b"[]\n", b"\xff\xfe\x00", b'{"kind": "end", "status": "finished"}\n',
    b'{"kind": "end", "status": ["finished"]}\n',
    b'{"kind": "end", "status": "finished", "iteration": "3", "seconds": null}\n',
    b'{"kind": "end", "status": "finished", "iteration": 3, "seconds": 1, "final": []}\n',
    b'{"kind": "end", "status": "finished", "iteration": 3, "seconds": 1, "final": {"test": 3}}\n',
    b'{"kind": "end", "status": "finished", "iteration": 3, "seconds": 1,'
    b' "final": {"test": {"accuracy": "high"}}}\n',
    b'{"kind": "step", "iteration": "one"}\n', b'{"kind": "eval", "iteration": null}\n',
    b'{"kind": ["start"]}\n', b'{"kind": "eval", "split": [], "iteration": 1}\n',
]  # fmt: skip


@pytest.mark.parametrize("content", ODD_RECORDS, ids=range(len(ODD_RECORDS)))
def test_damaged_records_are_told_in_one_line(trained, capsys, content):
    (trained / "metrics.jsonl").write_bytes(content)
    is_told_in_one_line(trained, capsys)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "lock", "log.txt"])
def test_a_folder_in_place_of_a_file_is_told_in_one_line(trained, capsys, name):
    (trained / name).unlink()
    (trained / name).mkdir()
    is_told_in_one_line(trained, capsys)
