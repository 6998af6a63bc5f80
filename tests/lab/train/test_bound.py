"""The bound on the evaluations of one iteration."""

import itertools
import math
import re
import statistics
from dataclasses import replace

import pytest
import torch
from torch import nn

from snopt.adjoint import NeuralODE
from snopt.lab.train import Parts, read_records, task, train
from snopt.lab.train.run import PATIENCE
from tests.lab.train.problems import CONFIG, At, Moons


class Stiff(nn.Module):
    """Its field becomes a thousand times faster at once."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, t, x):
        return -self.rate * x


def test_solve_that_costs_far_more_than_usual_is_given_up(tmp_path):
    field = Stiff()
    model = nn.Sequential(NeuralODE(field), nn.Linear(2, 2)).double()
    adam = torch.optim.Adam(model.parameters())

    def ruin():
        field.rate.data.fill_(1e4)

    config = replace(CONFIG, iterations=40, evaluate_every=50)
    parts = Parts(model, adam)
    outcome = train(Moons(), parts, config, tmp_path, listeners=[At(15, ruin)])
    assert (outcome.status, outcome.iteration) == ("diverged", 15 + PATIENCE)
    costs = [record["nfe_forward"] for record in read_records(tmp_path) if record["kind"] == "step"]
    assert max(costs) < 100
    assert "more than 1000 evaluations of the field" in outcome.message
    assert "lower the learning rate (0.001)" in outcome.message
    # The bound is the run's, not the model's.
    model(torch.ones(1, 2, dtype=torch.float64))
    assert model[0].stats.nfe_forward > 10_000


class Recurrent(nn.Module):
    """Many solves in one forward pass, as an ODE-RNN has; counts every evaluation of its field."""

    def __init__(self, solves=20, **solver):
        super().__init__()
        self.field, self.solves, self.calls = Stiff(), solves, 0
        self.field.register_forward_pre_hook(self.count)
        self.block, self.head = NeuralODE(self.field, **solver), nn.Linear(2, 2)

    def count(self, field, inputs):
        self.calls += 1

    def forward(self, x):
        for _ in range(self.solves):
            # What the block flattens is lifted again, so that every solve is stiff.
            x = self.block(x) + 1.0
        return self.head(x)


@pytest.mark.parametrize(
    "solver",
    [{}, {"method": "adaptive_heun", "rtol": 0.1, "atol": 0.1}, {"adjoint": "backsolve"}],
    ids=["checkpoint", "black box", "backsolve"],
)
def test_bound_is_for_all_solves_of_an_iteration_together(tmp_path, monkeypatch, solver):
    times = 4
    monkeypatch.setattr(task, "TIMES_MEDIAN", times)
    monkeypatch.setattr(task, "LEAST_BOUND", 1)
    model = Recurrent(**solver).double()
    calls = []

    class Ruin(At):
        def on_record(self, record):
            super().on_record(record)
            calls.append(model.calls)

    config = replace(CONFIG, iterations=40, evaluate_every=50)
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=1e-6))
    # No solve alone exceeds the bound; backward, some would.
    ruin = Ruin(15, lambda: model.field.rate.data.fill_(60.0))
    outcome = train(Moons(), parts, config, tmp_path, listeners=[ruin])
    assert (outcome.status, outcome.iteration) == ("diverged", 15 + PATIENCE)
    costs = [b - a for a, b in itertools.pairwise(calls)]
    usual = statistics.median(costs[2:15])
    # Two evaluations of each solve are outside its steps.
    assert max(costs) < times * usual + 2 * model.solves
    assert re.search(r"took more than \d+ evaluations of the field", outcome.message)
    assert "lower the learning rate (1e-06)" in outcome.message


def ruined(folder, model, at):
    """The outcome of a run whose field becomes stiff after an iteration."""
    config = replace(CONFIG, iterations=40, evaluate_every=50)
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=1e-6))
    ruin = At(at, lambda: model.field.rate.data.fill_(1e4))
    return train(Moons(), parts, config, folder, listeners=[ruin])


def test_bound_of_the_user_is_named_as_such(tmp_path):
    outcome = ruined(tmp_path, Recurrent(solves=1, options={"max_num_steps": 5}).double(), at=15)
    assert outcome.status == "diverged"
    assert "exceeded max_num_steps" in outcome.message


def test_bound_is_for_each_batch_of_an_evaluation(tmp_path):
    # Hundreds of batches are usual; one that takes many times the evaluations of an update is not.
    model = Recurrent(solves=4).double()
    config = replace(CONFIG, iterations=20, evaluate_every=20, eval_batch_size=1)
    parts = Parts(model, torch.optim.SGD(model.parameters(), lr=1e-6))
    outcome = train(Moons(), parts, config, tmp_path)
    assert math.isfinite(outcome.last["valid"]["loss"])
    last = At(20, lambda: model.field.rate.data.fill_(1e4))
    train(Moons(), parts, config, tmp_path, overwrite=True, listeners=[last])
    assert model.block.totals.nfe_forward < 2000


def test_bound_holds_from_the_second_update(tmp_path):
    outcome = ruined(tmp_path, Recurrent(solves=4).double(), at=1)
    assert (outcome.status, outcome.iteration) == ("diverged", 1 + PATIENCE)
