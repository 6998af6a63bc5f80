"""Listeners that write the numbers of a run elsewhere."""

import csv
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from snopt.lab.train import CSV, MLflow, PlainProgress, WandB, read_records, train
from snopt.lab.train.listeners import numbers
from tests.lab.train.problems import CONFIG, Moons, crash_at, interrupt_at, make_parts


def logged(folder):
    """What a logger must have received, by name: pairs of iterations and values."""
    found = {}
    for record in read_records(folder):
        for name, value in numbers(record).items():
            found.setdefault(name, []).append((record["iteration"], value))
    return found


def test_csv_has_every_number_once_also_after_resumes(tmp_path):
    run, path = tmp_path / "run", tmp_path / "numbers.csv"
    listeners = [CSV(path), interrupt_at(6)]
    train(Moons(), make_parts("adam"), CONFIG, run, listeners=listeners)
    listeners = [CSV(path), crash_at(11)]
    with pytest.raises(RuntimeError, match="a crash"):
        train(Moons(), make_parts("adam"), CONFIG, run, resume=True, listeners=listeners)
    train(Moons(), make_parts("adam"), CONFIG, run, resume=True, listeners=[CSV(path)])
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["iteration", "name", "value"]
    found = {}
    for iteration, name, value in rows:
        found.setdefault(name, []).append((int(iteration), float(value)))
    assert found == logged(run)
    assert len(found["train/loss"]) == 12


class FakeRun:
    def __init__(self):
        self.logged, self.ended = {}, None

    def log(self, values, step):
        for name, value in values.items():
            self.logged.setdefault(name, []).append((step, value))

    def finish(self, exit_code):
        self.ended = exit_code


def test_wandb_gets_the_numbers(tmp_path, monkeypatch):
    fake, given = FakeRun(), {}
    module = SimpleNamespace(init=lambda **settings: given.update(settings) or fake)
    monkeypatch.setitem(sys.modules, "wandb", module)
    listener = WandB(project="moons", mode="offline")
    train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[listener])
    assert given["project"] == "moons"
    assert given["config"]["iterations"] == 12
    assert fake.logged == logged(tmp_path)
    assert fake.ended == 0


def test_wandb_works_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    listener = WandB(project="moons", mode="offline", dir=str(tmp_path))
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "run", listeners=[listener])
    assert list(tmp_path.glob("wandb/offline-run-*"))


class FakeClient(FakeRun):
    def __init__(self):
        super().__init__()
        self.params = {}

    def __call__(self, uri):
        self.uri = uri
        return self

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "7"

    def create_run(self, experiment, **settings):
        assert experiment == "7"
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_param(self, run, name, value):
        self.params[name] = value

    def log_metric(self, run, name, value, step):
        self.log({name: value}, step)

    def set_terminated(self, run, status):
        self.ended = status


def test_mlflow_gets_the_numbers(tmp_path, monkeypatch):
    client = FakeClient()
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=client))
    listener = MLflow(tracking_uri="file:here")
    train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[listener])
    assert client.logged == logged(tmp_path)
    assert (client.uri, client.ended, client.params["iterations"]) == ("file:here", "FINISHED", 12)


def test_mlflow_works_with_a_file(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    listener = MLflow("moons", tracking_uri=uri)
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "run", listeners=[listener])
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("moons").experiment_id])
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(run.info.run_id, "train/loss")) == 12


@pytest.mark.parametrize(("package", "make"), [("wandb", WandB), ("mlflow", MLflow)])
def test_without_the_package_the_extra_is_named(monkeypatch, package, make):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'snopt\[{package}\]'"):
        make()


@pytest.mark.parametrize("content", [b"", b"a,b,c\nx,y,z\n1.5,a,3\n", b"\xff\n\x00"])
def test_csv_over_a_damaged_file_goes_on(tmp_path, content):
    path = tmp_path / "deep" / "numbers.csv"
    train(Moons(), make_parts("adam"), replace(CONFIG, iterations=6), tmp_path / "run")
    path.parent.mkdir()
    path.write_bytes(content)
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "run", resume=True, listeners=[CSV(path)])
    rows = [line.split(",") for line in path.read_text().splitlines()]
    assert {int(row[0]) for row in rows[1:]} == set(range(7, 13))


def test_csv_makes_its_folder(tmp_path):
    path = tmp_path / "deep" / "numbers.csv"
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "run", listeners=[CSV(path)])
    assert path.read_text().startswith("iteration,name,value\n")


def test_error_of_a_listener_is_not_hidden_by_its_end(tmp_path):
    class Broken(PlainProgress):
        def on_start(self, total, config):
            raise ConnectionError("no server")

        def on_end(self, outcome):
            raise AttributeError("never started")

    with pytest.raises(ConnectionError, match="no server"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[Broken()])
