"""The lower bound does the field evaluations of a solve, and the command divides by its time."""

import json

import pytest
import torch

from benchmarks.command import parse
from benchmarks.engine.bound import STAGES, Bound, recorded, traceable_pull
from benchmarks.engine.contenders import Trial

CASE = "cnf_miniboone_small"


@pytest.fixture(scope="module")
def trial():
    made = Trial("snopt_checkpoint", CASE, "tangent")
    made.run()
    return made


def test_recorded_calls_are_those_of_the_forward_solve(trial):
    calls, pulled = recorded(trial)
    assert len(calls) == trial.evaluations()[0]
    assert pulled == STAGES * trial.flow.stats.accepted <= len(calls)


def test_bound_evaluates_every_call_once(trial):
    calls, pulled = recorded(trial)
    field, seen = trial.workload.field, []
    handle = field.register_forward_pre_hook(
        lambda module, args: seen.append(torch.is_grad_enabled())
    )
    Bound(field, calls, pulled).run()
    handle.remove()
    assert seen == [True] * pulled + [False] * (len(calls) - pulled)


def test_traceable_products_are_those_of_autograd(trial):
    (call, *_), _ = recorded(trial)
    field, (t, (x, log_p)) = trial.workload.field, call
    params = dict(field.named_parameters())
    cotangent = (torch.ones_like(x), torch.ones_like(log_p))
    ((found, (found_x, _)),) = traceable_pull(field)(params, [call], cotangent)
    leaf = x.clone().requires_grad_()
    exact_x, *exact = torch.autograd.grad(
        field(t, (leaf, log_p)), (leaf, *params.values()), cotangent
    )
    torch.testing.assert_close(found_x, exact_x)
    torch.testing.assert_close(list(found.values()), exact)


def test_command_writes_ratios(tmp_path):
    out = tmp_path / "limit.json"
    flags = ["--cases", CASE, "--repeats", "2", "--eager", "--profile", "--out", str(out)]
    module, chosen = parse("benchmarks.engine", ["limit", *flags])
    module.main(chosen)
    found = json.loads(out.read_text())[CASE]
    assert set(found["over"]) == {"snopt_checkpoint", "around"}
    assert found["over"]["around"]["bound"]["median"] < 0.5
    assert 0.3 < found["over"]["snopt_checkpoint"]["bound"]["median"] < 5.0
    operators = {name: seconds for name, _, seconds in found["profile"]["snopt_checkpoint"]}
    assert operators["aten::mm"] > 0
    assert list(operators.values()) == sorted(operators.values(), reverse=True)
