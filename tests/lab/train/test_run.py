import json
import math
import time
from dataclasses import replace
from importlib.metadata import version
from itertools import chain

import pytest
import torch
from torch import nn

from snopt.adjoint import NeuralODE
from snopt.base.errors import UnknownName
from snopt.lab.train import Parts, RunFolderError, TrainConfig, load_checkpoint, read_records, train
from snopt.lab.train.folder import FolderLock
from snopt.lab.train.run import PATIENCE
from snopt.optim import SNOpt
from tests.lab.train.problems import CONFIG, At, Field, Moons, Points, interrupt_at, make_parts


def records_of(folder, kind):
    return [record for record in read_records(folder) if record["kind"] == kind]


def test_folder_holds_what_the_run_was(tmp_path):
    outcome = train(
        Moons(), make_parts("snopt"), CONFIG, tmp_path, describe={"note": {"path": tmp_path}}
    )  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["task"] == "moons"
    assert config["optimizer"] == "SNOpt"
    assert config["train"]["iterations"] == 12
    assert config["note"] == {"path": str(tmp_path)}
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["packages"]["torch"] == version("torch")
    assert environment["processes"] == 1
    assert {"command", "host", "platform", "started", "device"} <= set(environment)
    assert "finished at iteration 12 of 12" in (tmp_path / "log.txt").read_text()
    present = {path.name for path in tmp_path.iterdir()}
    assert present == {
        "config.json", "environment.json", "metrics.jsonl", "log.txt", "checkpoints", "lock",
    }  # fmt: skip
    assert outcome.folder == tmp_path


def test_records_are_complete(tmp_path):
    outcome = train(Moons(), make_parts("snopt"), CONFIG, tmp_path)
    steps, evals = records_of(tmp_path, "step"), records_of(tmp_path, "eval")
    assert [r["iteration"] for r in steps] == list(range(1, 13))
    assert [r["epoch"] for r in steps] == [i // 3 for i in range(12)]
    for record in steps:
        assert {"loss", "lr", "seconds", "cpu_seconds"} <= set(record)
        assert record["nfe_forward"] > 0
        assert record["horizon"] == [1.0]
        assert record["memory_mb"] > 10
    seconds = [r["seconds"] for r in steps]
    assert seconds == sorted(seconds)
    assert [(r["iteration"], r["split"]) for r in evals] == [
        (0, "valid"), (5, "valid"), (10, "valid"), (12, "valid"), (12, "test"),
    ]  # fmt: skip
    best = max(r["metrics"]["accuracy"] for r in evals if r["split"] == "valid")
    assert outcome.best == best
    (end,) = records_of(tmp_path, "end")
    assert end["status"] == outcome.status == "finished"
    assert end["final"]["test"] == outcome.last["test"] == evals[-1]["metrics"]
    assert "bytes_communicated" not in end


def test_evaluations_count_all_examples_alike(tmp_path):
    # 30 examples in batches of 12, 12 and 6.
    config = replace(CONFIG, iterations=1, eval_batch_size=12)
    parts, task = make_parts("adam"), Moons()
    train(task, parts, config, tmp_path)
    parts.model.eval()
    with torch.no_grad():
        whole = task.metrics(parts.model, task.test.batch(torch.arange(30)))
    found = records_of(tmp_path, "eval")[-1]["metrics"]
    # The adaptive solver chooses other steps for other batches.
    assert found["loss"] == pytest.approx(float(whole["loss"]), rel=1e-2)
    assert found["accuracy"] == pytest.approx(float(whole["accuracy"]), rel=1e-12)


def test_every_epoch_sees_every_example_once(tmp_path):
    seen = []

    class Watching(Points):
        def batch(self, indices):
            seen.append(indices.tolist())
            return super().batch(indices)

    task = Moons()
    task.train = Watching(60)
    config = TrainConfig(epochs=2, batch_size=20)
    assert train(task, make_parts("adam"), config, tmp_path).iteration == 6
    first, second = list(chain(*seen[:3])), list(chain(*seen[3:]))
    assert sorted(first) == sorted(second) == list(range(60))
    assert first != second
    assert [r["iteration"] for r in records_of(tmp_path, "eval")] == [0, 3, 6, 6]


@pytest.mark.parametrize(("metric", "target", "sign"), [("accuracy", 0.7, 1), ("loss", 0.6, -1)])
def test_target_ends_the_run_from_below_or_for_a_loss_from_above(tmp_path, metric, target, sign):
    config = replace(CONFIG, iterations=500, until=(metric, target))
    outcome = train(Moons(), make_parts("adam"), config, tmp_path)
    assert outcome.status == "target"
    assert outcome.iteration < 500
    assert sign * outcome.last["valid"][metric] >= sign * target
    assert outcome.exit_code == 0
    assert "test" in outcome.last


class Judged(Moons):
    """The metric of each evaluation is given."""

    metric, mode = "score", "min"

    def __init__(self, *scores):
        super().__init__()
        self.scores, self.test = list(scores), None

    def metrics(self, model, batch):
        score = self.scores.pop(0)
        return {**super().metrics(model, batch), "score": torch.tensor(score)}


def test_model_of_the_best_evaluation_is_kept(tmp_path):
    task = Judged(5.0, 3.0, 1.0, math.nan, 2.0)
    parts, weights = make_parts("adam"), []
    watch = At(4, lambda: weights.append(parts.model[2].weight.detach().clone()))
    train(task, parts, replace(CONFIG, iterations=8, evaluate_every=2), tmp_path, listeners=[watch])
    best = load_checkpoint(tmp_path, best=True)
    assert (best["iteration"], best["metrics"]["score"]) == (4, 1.0)
    assert torch.equal(best["model"]["2.weight"], weights[0])
    assert [path.name for path in (tmp_path / "checkpoints").glob("best*.pt")] == [
        "best-00000004.pt"
    ]


def test_patience_ends_the_run_also_after_a_resume(tmp_path):
    config = replace(CONFIG, iterations=99, evaluate_every=2, patience=3)
    scores = [5.0, 4.0, math.nan, 4.0, 4.5, 1.0]
    outcome = train(Judged(*scores), make_parts("adam"), config, tmp_path / "whole")
    assert (outcome.status, outcome.iteration, outcome.exit_code) == ("plateau", 8, 0)
    assert "3 evaluations without an improvement on score 4" in outcome.message
    cut = tmp_path / "cut"
    train(Judged(*scores[:4]), make_parts("adam"), config, cut, listeners=[interrupt_at(6)])
    outcome = train(Judged(*scores[4:]), make_parts("adam"), config, cut, resume=True)
    assert (outcome.status, outcome.iteration) == ("plateau", 8)


def test_time_budget_counts_training_only(tmp_path):
    class Slow(Moons):
        def metrics(self, model, batch):
            time.sleep(0.05)
            return super().metrics(model, batch)

    config = TrainConfig(max_seconds=0.05, batch_size=20, evaluate_every=1)
    begun = time.perf_counter()
    outcome = train(Slow(), make_parts("sgd"), config, tmp_path)
    assert outcome.status == "budget"
    assert outcome.seconds >= 0.05
    assert time.perf_counter() - begun - outcome.seconds > 0.05 * (outcome.iteration + 1)


def test_budget_of_cpu_seconds_does_not_count_waiting(tmp_path):
    class Waiting(Moons):
        def loss(self, model, batch):
            time.sleep(0.02)
            return super().loss(model, batch)

    config = TrainConfig(iterations=20, max_cpu_seconds=60.0, batch_size=20)
    outcome = train(Waiting(), make_parts("sgd"), config, tmp_path / "waiting")
    assert outcome.status == "finished"
    config = TrainConfig(max_cpu_seconds=0.05, batch_size=20)
    outcome = train(Moons(), make_parts("sgd"), config, tmp_path / "working")
    assert outcome.status == "budget"
    assert "limit of 0.05 CPU s" in (tmp_path / "working" / "log.txt").read_text()


def test_task_without_validation_and_test_trains(tmp_path):
    task = Moons()
    task.valid = task.test = None
    outcome = train(task, make_parts("adam"), CONFIG, tmp_path)
    assert (outcome.best, outcome.last) == (None, {})
    assert load_checkpoint(tmp_path)["iteration"] == 12


def test_schedule_moves_the_recorded_rate(tmp_path):
    train(Moons(), make_parts("scheduled"), CONFIG, tmp_path)
    rates = [r["lr"] for r in records_of(tmp_path, "step")]
    assert rates == [0.1] * 4 + [0.05] * 4 + [0.025] * 4


def test_record_every_thins_the_steps(tmp_path):
    train(Moons(), make_parts("adam"), replace(CONFIG, record_every=5), tmp_path)
    assert [r["iteration"] for r in records_of(tmp_path, "step")] == [5, 10]


class Doomed(Moons):
    """Its loss is NaN from some iteration on."""

    def __init__(self, healthy):
        super().__init__()
        self.healthy = healthy

    def loss(self, model, batch):
        self.healthy -= 1
        return super().loss(model, batch) * (1.0 if self.healthy >= 0 else math.nan)


@pytest.mark.filterwarnings("ignore:a gradient or the loss")
@pytest.mark.parametrize("kind", ["adam", "snopt", "lbfgs"])
def test_diverged_run_says_so(tmp_path, kind):
    outcome = train(Doomed(healthy=30), make_parts(kind), replace(CONFIG, iterations=99), tmp_path)
    assert outcome.status == "diverged"
    assert outcome.exit_code == 3
    steps = records_of(tmp_path, "step")
    assert all(r["loss"] is None and "loss is nan" in r["skipped"] for r in steps[-PATIENCE + 1 :])
    assert "skipped" not in steps[0]
    (end,) = records_of(tmp_path, "end")
    assert "lower the learning rate" in end["message"]


def test_one_bad_batch_is_not_divergence(tmp_path):
    task = Moons()
    task.train.x[3] = math.nan
    outcome = train(task, make_parts("adam"), CONFIG, tmp_path)
    assert outcome.status == "finished"
    skipped = [r["iteration"] for r in records_of(tmp_path, "step") if "skipped" in r]
    assert len(skipped) == 4  # once an epoch


class Blowing(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, t, x):
        return self.rate * (1 + x * x)


def test_solves_that_fail_are_divergence_too(tmp_path):
    model = nn.Sequential(NeuralODE(Blowing(), horizon=9.0), nn.Linear(2, 2)).double()
    adam = torch.optim.Adam(model.parameters())
    outcome = train(Moons(), Parts(model, adam), CONFIG, tmp_path)
    assert (outcome.status, outcome.iteration) == ("diverged", PATIENCE)
    assert outcome.last["valid"]["loss"] != outcome.last["valid"]["loss"]
    assert records_of(tmp_path, "eval")[0]["metrics"] == {"loss": None, "accuracy": None}


@pytest.mark.parametrize(
    ("kind", "said"),
    [("amortized", "raise the damping"), ("snopt", "on_divergence"), ("adam", "rate (0.02).")],
)
@pytest.mark.filterwarnings("ignore:a gradient or the loss")
def test_advice_fits_the_optimizer(tmp_path, kind, said):
    outcome = train(Doomed(healthy=3), make_parts(kind), CONFIG, tmp_path)
    assert said in outcome.message


def test_error_of_the_task_is_recorded_and_raised(tmp_path):
    class Faulty(Moons):
        def loss(self, model, batch):
            raise IndexError("a fault")

    with pytest.raises(IndexError, match="a fault"):
        train(Faulty(), make_parts("adam"), CONFIG, tmp_path)
    (end,) = records_of(tmp_path, "end")
    assert (end["status"], end["message"]) == ("failed", "IndexError: a fault")
    assert "a fault" in (tmp_path / "log.txt").read_text()
    with FolderLock(tmp_path):
        pass  # the lock is released


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"until": ("acuracy", 0.9)}, UnknownName),
        ({"iterations": None}, ValueError),
        ({"epochs": 3}, ValueError),
        ({"batch_size": 0}, ValueError),
        ({"clip": -1.0}, ValueError),
        ({"max_seconds": math.nan}, ValueError),
        ({"max_cpu_seconds": 0.0}, ValueError),
    ],
)
def test_settings_that_make_no_sense_leave_no_folder(tmp_path, change, error):
    with pytest.raises(error):
        train(Moons(), make_parts("adam"), replace(CONFIG, **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_target_without_validation_is_refused(tmp_path):
    task = Moons()
    task.valid = None
    with pytest.raises(ValueError, match="needs validation examples"):
        train(task, make_parts("adam"), replace(CONFIG, until=("loss", 0.1)), tmp_path / "run")


def test_metrics_without_the_promised_one_are_refused(tmp_path):
    task = Moons()
    task.metric = "f1"
    with pytest.raises(ValueError, match="'f1'"):
        train(task, make_parts("adam"), CONFIG, tmp_path)


def test_state_that_could_not_be_resumed_stops_the_run_at_its_first_checkpoint(tmp_path):
    parts = make_parts("adam")
    parts.optimizer.param_groups[0]["owner"] = Moons()
    with pytest.raises(RunFolderError, match="tensors and plain values"):
        train(Moons(), parts, CONFIG, tmp_path)


@pytest.mark.parametrize("several", [False, True])
def test_pictures_are_drawn_for_the_report(tmp_path, several):
    class Drawing(Moons):
        def picture(self, model):
            assert not model.training
            one = {"kind": "points", "title": "states", "points": model(self.test.x[:2])}
            return {"flow": one} if several else one

    train(Drawing(), make_parts("adam"), CONFIG, tmp_path)
    name = "flow" if several else "picture"
    drawn = json.loads((tmp_path / "pictures" / f"{name}.json").read_text())
    assert len(drawn["points"]) == 2


def test_picture_that_fails_is_only_logged(tmp_path):
    class Drawing(Moons):
        def picture(self, model):
            raise ZeroDivisionError("no canvas")

    assert train(Drawing(), make_parts("adam"), CONFIG, tmp_path).status == "finished"
    assert "no canvas" in (tmp_path / "log.txt").read_text()


def test_loop_itself_takes_no_time(tmp_path):
    # An image iteration takes hundreds of milliseconds; 2% of one is several.
    class Trivial(Moons):
        def loss(self, model, batch):
            return model(batch.x).mean()

    model = nn.Linear(2, 2).double()
    parts, task, count = Parts(model, torch.optim.SGD(model.parameters(), lr=0.1)), Trivial(), 200
    config = TrainConfig(iterations=count, batch_size=20, evaluate_every=count)
    train(task, parts, replace(config, iterations=1), tmp_path / "warm")
    begun = time.process_time()
    train(task, parts, config, tmp_path / "run")
    assert (time.process_time() - begun) / count < 4e-3


def test_dropped_tape_evaluations_are_counted_by_the_iteration(tmp_path):
    # Euler with 4 steps: 4 evaluations forward in every iteration, whatever evaluation did between.
    model = nn.Sequential(
        NeuralODE(Field(4), method="euler", options={"step_size": 0.25}), nn.Linear(2, 2)
    ).double()
    train(Moons(), Parts(model, SNOpt(model, lr=0.01)), CONFIG, tmp_path)
    counts = {r["nfe_forward"] for r in records_of(tmp_path, "step")}
    assert counts == {4}
