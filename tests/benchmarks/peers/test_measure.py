"""Libraries side by side: rounds, ratios, errors, and those that cannot run or are slow."""

import pytest

from benchmarks.engine.contenders import Trial
from benchmarks.peers import measure

CASE, OURS, PEER = "cnf_miniboone_small", "snopt_checkpoint", "torchdiffeq_direct"


@pytest.fixture
def references(monkeypatch):
    def reference(case):
        trial = Trial(PEER, case, "tangent")
        trial.run()
        return trial.gradients(), {"parameters": 0.0, "inputs": 0.0}

    monkeypatch.setattr(measure, "reference", reference)


def test_engines_are_timed_against_ours_and_their_errors_measured(references):
    found = measure.engines(CASE, [OURS, PEER], budget=0.0)
    ours, peer = (found["contenders"][name] for name in (OURS, PEER))
    assert found["rounds"] == measure.FEWEST
    assert found["form"] == "tangent"
    assert peer["error"] == {"parameters": 0.0, "inputs": 0.0}
    assert 0.0 < ours["error"]["parameters"] < 1e-4
    assert ours["both_over"][OURS]["median"] == 1.0
    assert 0.1 < peer["both_over"][OURS]["median"] < 10.0
    assert peer["forward"]["median"] < peer["both"]["median"]


def test_slow_engine_runs_once(references, monkeypatch):
    monkeypatch.setattr(measure, "SLOW", 0.0)
    found = measure.engines(CASE, [PEER], budget=0.0)["contenders"][PEER]
    assert found["both"]["lower"] == found["both"]["upper"] > 0
    assert "both_over" not in found
    assert "forward" not in found


def test_rounds_fit_the_budget_within_bounds():
    assert measure.fitting(4.0, 20.0) == 5
    assert measure.fitting(100.0, 20.0) == measure.FEWEST
    assert measure.fitting(0.01, 20.0) == measure.MOST


def test_library_that_fails_or_is_left_out_has_a_reason_and_the_others_run():
    def run(name, case):
        if name == "torchode_autodiff":
            raise ImportError("no torchode\nat all")
        return 1.0

    names = ("torchdyn_adjoint", "torchode_autodiff", "diffrax_backsolve")
    found, unable = measure.tried("image", names, run)
    assert found == {"torchdyn_adjoint": 1.0}
    assert unable["torchode_autodiff"] == "ImportError: no torchode"
    assert unable["diffrax_backsolve"] == measure.left_out("image", "diffrax_backsolve")
