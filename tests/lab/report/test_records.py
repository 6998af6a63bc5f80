import json
import math
import tracemalloc
from itertools import pairwise

import pytest

from snopt.lab.report import records as records_module
from snopt.lab.report.records import parse_records


def lines_of(*lines):
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return [f"{text}\n".encode() for text in texts]


def step(iteration, **values):
    return {"kind": "step", "iteration": iteration, "seconds": iteration / 2, **values}


def evaluation(iteration, split="valid", **metrics):
    place = {"kind": "eval", "iteration": iteration, "seconds": iteration / 2, "split": split}
    return {**place, "metrics": metrics}


def test_steps_and_evaluations_are_told_apart_by_split():
    records = parse_records(
        lines_of(
            {"kind": "start", "resumed_from": None},
            evaluation(0, loss=2.0),
            step(1, loss=1.5, horizon=[0.9, 0.8]),
            evaluation(1, "test", loss=1.0),
            {"kind": "end", "status": "finished"},
        )
    )
    assert records.problems == []
    columns = {name: list(column) for name, column in records.steps.values.items()}
    assert columns == {"loss": [1.5], "horizon 1": [0.9], "horizon 2": [0.8]}
    assert records.split("valid").table("loss").tolist() == [[0, 0, 2.0]]
    assert list(records.evals["test"].seconds) == [0.5]
    assert records.end == {"kind": "end", "status": "finished"}


def test_a_resumed_run_replaces_what_it_does_again():
    records = parse_records(
        lines_of(
            *(step(i, loss=1.0) for i in range(1, 8)),
            evaluation(4, loss=1.0),
            evaluation(6, loss=1.0),
            {"kind": "end", "status": "interrupted"},
            {"kind": "start", "resumed_from": 4},
            step(5, loss=5.0),
        )
    )
    assert list(records.steps.iteration) == [1, 2, 3, 4, 5]
    assert records.steps.values["loss"][-1] == 5.0
    assert list(records.evals["valid"].iteration) == [4]
    assert records.end is None


def test_a_resumed_run_is_recognised_when_its_start_record_is_lost():
    lines = [step(1), step(2), step(3), evaluation(3, loss=1.0), "{torn", step(2), step(3)]
    records = parse_records(lines_of(*lines))
    assert list(records.steps.iteration) == [1, 2, 3]
    assert len(records.evals["valid"]) == 0


def test_a_run_started_anew_forgets_the_old_one():
    records = parse_records(lines_of(step(1), {"kind": "start", "resumed_from": None}))
    assert len(records.steps) == 0


def test_a_line_without_its_newline_is_incomplete_and_others_are_damaged():
    records = parse_records([*lines_of(step(1), "gar\x00bage", "[1]", "3"), b'{"kind": "st'])
    assert len(records.steps) == 1
    assert records.problems == [
        "3 lines are not a JSON object (the first is line 2)",
        "line 5 is incomplete: the run was stopped while writing it",
    ]


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "step", "loss": 1.0},
        {"kind": "step", "iteration": "1", "seconds": 1.0},
        {"kind": "step", "iteration": 1, "seconds": math.nan},
        {"kind": "step", "iteration": 10**400, "seconds": 1.0},
        {"kind": "step", "iteration": 10**30, "seconds": 1.0},
        {"kind": "step", "iteration": 1, "seconds": 1e308},
        {"kind": "eval", "iteration": 1, "seconds": 1.0},
        {"kind": "eval", "iteration": 1, "seconds": 1.0, "metrics": [1]},
        {"kind": "sausage"},
        {"kind": ["list"]},
        {},
        '{"a":' * 100_000,
        "9" * 10_000,
    ],
)
def test_a_bad_line_costs_itself_alone(line):
    records = parse_records(lines_of(step(1), line, step(2)))
    assert list(records.steps.iteration) == [1, 2]
    assert len(records.problems) == 1


def test_values_that_are_no_numbers_are_left_out_and_nan_is_kept():
    lines = lines_of('{"kind":"step","iteration":1,"seconds":1,"loss":NaN,"lr":"x","ok":null}')
    steps = parse_records(lines).steps
    assert list(steps.values) == ["loss"]
    assert math.isnan(steps.values["loss"][0])
    assert len(steps.table("loss")) == 0


def test_steps_of_a_long_run_are_thinned_evenly_and_its_last_step_is_kept(monkeypatch):
    monkeypatch.setattr(records_module, "KEPT_STEPS", 50)
    steps = parse_records(lines_of(*(step(i, loss=i) for i in range(1, 1001)))).steps
    assert 50 <= len(steps) < 101
    assert steps.iteration[-1] == 1000
    gaps = {b - a for a, b in pairwise(steps.iteration[:-1])}
    assert gaps == {16}
    assert list(steps.values["loss"]) == list(steps.iteration)


def test_thinning_loses_no_skipped_update_no_evaluation_and_no_damage(monkeypatch):
    monkeypatch.setattr(records_module, "KEPT_STEPS", 10)
    lines = [step(i, loss=1.0) for i in range(1, 500)]
    lines[400]["skipped"] = "the loss is nan"
    lines[401:401] = [evaluation(400, loss=1.0), '{"kind": "step", "iterat']
    records = parse_records(lines_of(*lines))
    assert records.skipped == [(401, "the loss is nan")]
    assert list(records.evals["valid"].iteration) == [400]
    assert records.problems == ["line 403 is not a JSON object"]


def test_a_thinned_run_that_was_resumed_is_rewound(monkeypatch):
    monkeypatch.setattr(records_module, "KEPT_STEPS", 10)
    first = [step(i, loss=1.0) for i in range(1, 201)]
    again = [step(i, loss=2.0) for i in range(101, 301)]
    lines = lines_of(*first, {"kind": "start", "resumed_from": 100}, *again)
    table = parse_records(lines).steps.table("loss")
    assert all(before < after for before, after in pairwise(table[:, 0]))
    assert all(value == (1.0 if iteration <= 100 else 2.0) for iteration, _, value in table)


def test_memory_does_not_grow_with_the_number_of_lines():
    place = b'{"kind": "step", "iteration": %d, "epoch": 3, "seconds": %d.25, "loss": 0.125, '
    rest = b'"lr": 0.001, "nfe_forward": 26, "nfe_backward": 31, "memory_mb": 512.5}\n'
    tracemalloc.start()
    steps = parse_records(place % (i, i) + rest for i in range(1, 200_001)).steps
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps.iteration[-1] == 200_000
    assert peak < 5e6
