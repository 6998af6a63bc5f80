import math

import pytest

from snopt.lab.report.groups import group_runs
from snopt.lab.report.read import read_runs
from snopt.lab.report.summary import (
    final_value,
    measure_of,
    seconds_per_iteration,
    summarize,
    time_to_target,
)
from tests.lab.report.fabricate import lines_of, write_comparison, write_run


def groups_of(root):
    [groups] = group_runs(read_runs([root])).values()
    return groups


def test_metric_and_mode_come_from_the_config(tmp_path):
    write_run(tmp_path, config={"metric": "loss", "mode": "min"})
    measure = measure_of(groups_of(tmp_path))
    assert (measure.metric, measure.mode) == ("loss", "min")


@pytest.mark.parametrize(("name", "mode"), [("accuracy", "max"), ("nll", "min"), ("bpd", "min")])
def test_metric_and_mode_are_guessed_from_the_records_otherwise(tmp_path, name, mode):
    lines = [
        {"kind": "eval", "iteration": 0, "seconds": 0, "metrics": {"loss": 1.0, name: 0.5}},
    ]
    write_run(tmp_path, config={"metric": None, "mode": None}, lines=lines)
    measure = measure_of(groups_of(tmp_path))
    assert (measure.metric, measure.mode) == (name, mode)


def test_target_is_that_of_the_training_and_else_what_the_baseline_reached(tmp_path):
    write_comparison(tmp_path)
    measure = measure_of(groups_of(tmp_path))
    assert measure.baseline == "adam"
    assert measure.target == pytest.approx(1 - math.exp(-0.15 * 40))
    assert measure.origin == "the value that every seed of adam reached"
    assert measure_of(groups_of(tmp_path), target=0.5).target == 0.5
    write_run(tmp_path / "b", config={"train": {"until": ["accuracy", 0.9]}})
    assert measure_of(groups_of(tmp_path / "b")).target == 0.9


def test_a_target_on_another_metric_is_not_taken(tmp_path):
    write_run(tmp_path, config={"train": {"until": ["loss", 0.1]}})
    assert measure_of(groups_of(tmp_path)).origin == "the value that every seed of adam reached"


def test_baseline_is_adam_or_what_is_asked_or_what_is_there(tmp_path):
    write_run(tmp_path, "snopt", 0)
    assert measure_of(groups_of(tmp_path)).baseline == "snopt"
    write_run(tmp_path, "sgd", 0)
    assert measure_of(groups_of(tmp_path)).baseline == "sgd"
    write_run(tmp_path, "adam", 0)
    assert measure_of(groups_of(tmp_path)).baseline == "adam"
    assert measure_of(groups_of(tmp_path), baseline="sgd").baseline == "sgd"


def test_time_to_target_is_the_first_evaluation_that_is_good_enough(tmp_path):
    write_run(tmp_path, rate=0.1, per_iteration=0.5)
    groups = groups_of(tmp_path)
    [run] = groups[0].runs
    # 1 - exp(-i / 10) >= 0.7 from i = 12.04 on; evaluations are at multiples of five.
    assert time_to_target(run, measure_of(groups, target=0.7)) == (7.5, 15.0)
    assert time_to_target(run, measure_of(groups, target=0.9999)) is None


def test_less_is_better_in_mode_min(tmp_path):
    write_run(tmp_path, config={"metric": "loss", "mode": "min"}, rate=0.1)
    groups = groups_of(tmp_path)
    measure = measure_of(groups, target=0.3)
    assert time_to_target(groups[0].runs[0], measure) == (7.5, 15.0)
    assert summarize(groups[0], measure).stats["best"].mean == pytest.approx(math.exp(-4))


def test_final_value_is_that_of_the_end_record_else_the_last_evaluation(tmp_path):
    whole = write_run(tmp_path, "adam", 0, rate=0.1)
    [run] = read_runs([whole])
    measure = measure_of(groups_of(tmp_path))
    assert (measure.split, measure.final_split) == ("valid", "test")
    assert final_value(run, measure) == pytest.approx(0.99 - math.exp(-4))
    write_run(tmp_path / "b", "adam", 0, rate=0.1, lines=lines_of(rate=0.1)[:-1])
    groups = groups_of(tmp_path / "b")
    [run] = groups[0].runs
    assert final_value(run, measure_of(groups)) == pytest.approx(1 - math.exp(-4))


def test_seconds_an_iteration_are_not_those_of_the_first(tmp_path):
    lines = lines_of(per_iteration=0.5)
    for line in lines:
        if line.get("iteration", 0) > 1:
            line["seconds"] += 100
    [run] = read_runs([write_run(tmp_path, lines=lines)])
    assert seconds_per_iteration(run) == pytest.approx(0.5)


def test_summary_is_over_seeds_and_says_how_many_have_the_number(tmp_path):
    write_comparison(tmp_path)
    groups = groups_of(tmp_path)
    measure = measure_of(groups)
    snopt, _, sgd = (summarize(group, measure) for group in groups)
    costs = [snopt.stats[name].mean for name in ("NFE forward", "NFE backward", "memory, MB")]
    assert costs == [14, 12, 140]
    assert snopt.stats["seconds / iteration"].mean == pytest.approx(0.6)
    assert snopt.whole("seconds to target").count == 2
    assert sgd.stats["seconds to target"] is None
    assert sgd.stats["final"].count == 1
    assert sgd.whole("final") is None


def test_a_diverged_seed_is_left_out_of_the_mean_and_counted(tmp_path):
    write_run(tmp_path, "adam", 0)
    lines = lines_of()
    lines[-1]["final"] = {"test": {"accuracy": float("nan")}}
    write_run(tmp_path, "adam", 1, lines=lines)
    groups = groups_of(tmp_path)
    assert summarize(groups[0], measure_of(groups)).stats["final"].count == 1
