import json
import math

import pytest

from snopt.lab.report.records import parse_records


def text_of(*lines):
    return "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)


def step(iteration, **values):
    return {"kind": "step", "iteration": iteration, "seconds": iteration / 2, **values}


def evaluation(iteration, split="valid", **metrics):
    place = {"kind": "eval", "iteration": iteration, "seconds": iteration / 2, "split": split}
    return {**place, "metrics": metrics}


def test_steps_and_evaluations_are_told_apart_by_split():
    records = parse_records(
        text_of(
            {"kind": "start", "resumed_from": None},
            evaluation(0, loss=2.0),
            step(1, loss=1.5, horizon=[0.9, 0.8]),
            evaluation(1, "test", loss=1.0),
            {"kind": "end", "status": "finished"},
        )
    )
    assert records.problems == []
    assert records.steps[0].values == {"loss": 1.5, "horizon 1": 0.9, "horizon 2": 0.8}
    assert [record.values for record in records.evals["valid"]] == [{"loss": 2.0}]
    assert [record.seconds for record in records.evals["test"]] == [0.5]
    assert records.end == {"kind": "end", "status": "finished"}


def test_a_resumed_run_replaces_what_it_does_again():
    records = parse_records(
        text_of(
            *(step(i, loss=1.0) for i in range(1, 8)),
            evaluation(4, loss=1.0),
            evaluation(6, loss=1.0),
            {"kind": "end", "status": "interrupted"},
            {"kind": "start", "resumed_from": 4},
            step(5, loss=5.0),
        )
    )
    assert [record.iteration for record in records.steps] == [1, 2, 3, 4, 5]
    assert records.steps[-1].values["loss"] == 5.0
    assert [record.iteration for record in records.evals["valid"]] == [4]
    assert records.end is None


def test_a_resumed_run_is_recognised_when_its_start_record_is_lost():
    lines = [step(1), step(2), step(3), evaluation(3, loss=1.0), "{torn", step(2), step(3)]
    records = parse_records(text_of(*lines))
    assert [record.iteration for record in records.steps] == [1, 2, 3]
    assert records.evals["valid"] == []


def test_a_run_started_anew_forgets_the_old_one():
    records = parse_records(text_of(step(1), {"kind": "start", "resumed_from": None}))
    assert records.steps == []


def test_a_line_without_its_newline_is_torn_and_others_are_damaged():
    records = parse_records(text_of(step(1), "gar\x00bage", "[1]", "3") + '{"kind": "st')
    assert len(records.steps) == 1
    assert records.problems == [
        "3 lines are not a JSON object (the first is line 2)",
        "line 5 is torn: the run was stopped while writing it",
    ]


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "step", "loss": 1.0},
        {"kind": "step", "iteration": "1", "seconds": 1.0},
        {"kind": "step", "iteration": 1, "seconds": math.nan},
        {"kind": "step", "iteration": 10**400, "seconds": 1.0},
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
    records = parse_records(text_of(step(1), line, step(2)))
    assert [record.iteration for record in records.steps] == [1, 2]
    assert len(records.problems) == 1


def test_values_that_are_no_numbers_are_left_out_and_nan_is_kept():
    text = text_of('{"kind":"step","iteration":1,"seconds":1,"loss":NaN,"lr":"x","ok":null}')
    [record] = parse_records(text).steps
    assert list(record.values) == ["loss"]
    assert math.isnan(record.values["loss"])
