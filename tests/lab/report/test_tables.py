import pytest

from snopt.base.errors import UnknownName
from snopt.lab.report.read import read_runs
from snopt.lab.report.summary import Stat
from snopt.lab.report.tables import (
    compare,
    headline,
    problems_table,
    runs_table,
    stat_text,
    summary_table,
)
from tests.lab.report.fabricate import lines_of, write_comparison, write_run

SIMILAR = "Similar test accuracy, within the spread or 2 %:"


def cells_of(root, **options):
    """The cells of the summary by optimizer and heading."""
    [comparison] = compare(read_runs([root]), **options)
    table = summary_table(comparison)
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}, table.caption


def test_summary_has_every_column_and_ratios_to_the_baseline(tmp_path):
    cells, caption = cells_of(write_comparison(tmp_path))
    assert list(cells["snopt"]) == [
        "optimizer", "seeds", "final test accuracy", "best valid accuracy", "seconds to target",
        "iterations to target", "seconds / iteration", "NFE forward", "NFE backward", "memory, MB",
    ]  # fmt: skip
    assert cells["snopt"]["seconds / iteration"] == "0.6"
    assert cells["snopt"]["seconds / iteration"].note == "1.20×"
    assert cells["adam"]["seconds / iteration"].note == ""
    assert cells["sgd"]["seeds"].note == "1 finished, 1 unfinished"
    assert cells["sgd"]["final test accuracy"].note == "1 of 2 seeds"
    assert cells["sgd"]["seconds to target"] is None
    assert "ratio to adam" in caption


def test_the_best_of_a_column_is_marked_and_none_where_all_are_alike(tmp_path):
    cells, _ = cells_of(write_comparison(tmp_path))
    best = {heading for heading, cell in cells["snopt"].items() if getattr(cell, "best", False)}
    # The accuracies differ by less than 2 %.
    assert best == {"seconds to target", "iterations to target"}
    assert not any(row["NFE forward"].best for row in cells.values())


def test_a_mean_over_some_of_the_seeds_is_not_marked_best(tmp_path):
    write_run(tmp_path, "snopt", 0, rate=0.5)
    write_run(tmp_path, "snopt", 1, rate=0.001)
    write_run(tmp_path, "adam", 0, rate=0.1)
    write_run(tmp_path, "sgd", 0, rate=0.07)
    cells, _ = cells_of(tmp_path, target=0.9)
    assert cells["snopt"]["seconds to target"].note == "0.20×, 1 of 2 seeds"
    best = [name for name, row in cells.items() if row["seconds to target"].best]
    assert best == ["adam"]


def test_ratios_follow_the_baseline_that_is_asked_for(tmp_path):
    cells, caption = cells_of(write_comparison(tmp_path), baseline="snopt")
    assert cells["adam"]["seconds / iteration"].note == "0.83×"
    assert "ratio to snopt" in caption


def test_an_unknown_baseline_names_the_nearest(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'adam'"):
        compare(read_runs([write_comparison(tmp_path)]), baseline="adma")


def test_columns_without_a_number_are_left_out(tmp_path):
    write_run(tmp_path, lines=[{"kind": "start"}])
    cells, _ = cells_of(tmp_path)
    assert list(cells["adam"]) == ["optimizer", "seeds"]


def test_runs_and_problems_have_a_row_each(tmp_path):
    runs = read_runs([write_comparison(tmp_path), tmp_path / "nowhere"])
    table = runs_table(compare(runs))
    assert len(table.rows) == 6
    assert {len(row) for row in table.rows} == {len(table.columns)}
    problems = [row[1] for row in problems_table(runs).rows]
    assert problems[-1] == "no such folder"
    assert any("incomplete" in problem for problem in problems)
    assert problems_table(read_runs([tmp_path / "spirals" / "adam-seed0"])) is None


def test_headline_tells_who_was_first_and_what_the_baseline_took(tmp_path):
    [comparison] = compare(read_runs([write_comparison(tmp_path)]), target=0.7)
    # SNOpt is there at iteration 5 with both seeds (3 s), Adam at 10 and 10 (5 s).
    assert headline(comparison) == (
        "Shortest time to valid accuracy ≥ 0.7: snopt 3 s; adam took 1.67 times as long. "
        "Not every seed of sgd reached it."
    )


def write_seeds(root, name, rates, **training):
    for seed, rate in enumerate(rates):
        write_run(root, name, seed, rate=rate, **training)


def test_headline_names_no_winner_within_the_spread(tmp_path):
    write_seeds(tmp_path, "snopt", (0.1, 0.3), iterations=60)
    write_seeds(tmp_path, "adam", (0.1, 0.2), iterations=60)
    [comparison] = compare(read_runs([tmp_path]), target=0.9)
    # Seconds 7.5 and 12.5 against 5 and 12.5.
    assert headline(comparison) == (
        "Similar time to valid accuracy ≥ 0.9, within the spread or 2 %: "
        "snopt 8.8 ± 5.3 s, adam 10.0 ± 3.5 s."
    )
    [comparison] = compare(read_runs([tmp_path]), target=2.0)
    assert headline(comparison).startswith(f"{SIMILAR} snopt 0.98")
    cells, _ = cells_of(tmp_path, target=0.9)
    assert not any(getattr(cell, "best", False) for row in cells.values() for cell in row.values())


def test_headline_states_the_spread_of_the_winner(tmp_path):
    write_seeds(tmp_path, "snopt", (0.4, 0.5))
    write_seeds(tmp_path, "adam", (0.05, 0.06))
    [comparison] = compare(read_runs([tmp_path]), target=2.0)
    assert headline(comparison) == "Best test accuracy: snopt 0.9900 ± 8e-08."


@pytest.mark.parametrize(("slower", "marked"), [(1.01, False), (1.03, True)])
def test_what_differs_by_less_than_two_percent_is_not_marked(tmp_path, slower, marked):
    for seed in range(2):
        for name, factor in (("snopt", 1.0), ("adam", slower)):
            lines = lines_of(per_iteration=0.5 * factor)
            lines[-1]["final"] = {"test": {"accuracy": 0.9 / factor + 1e-4 * seed}}
            write_run(tmp_path, name, seed, lines=lines)
    cells, _ = cells_of(tmp_path)
    for column in ("seconds / iteration", "final test accuracy"):
        assert cells["snopt"][column].best == marked
        assert not cells["adam"][column].best
    [comparison] = compare(read_runs([tmp_path]), target=2.0)
    assert headline(comparison).startswith("Best" if marked else "Similar")


def test_headline_boasts_of_no_time_that_a_seed_did_not_reach(tmp_path):
    write_run(tmp_path, "snopt", 0, rate=0.5)
    write_run(tmp_path, "snopt", 1, rate=0.001)
    write_run(tmp_path, "adam", 0, rate=0.1)
    [comparison] = compare(read_runs([tmp_path]), target=0.9)
    assert "time" not in headline(comparison)


def test_headline_names_the_best_end_unless_all_are_alike(tmp_path):
    write_run(tmp_path, "adam", 0, rate=0.1)
    write_run(tmp_path, "sgd", 0, rate=0.1)
    [comparison] = compare(read_runs([tmp_path]), target=2.0)
    assert headline(comparison) == f"{SIMILAR} adam 0.9717, sgd 0.9717."
    write_run(tmp_path, "muon", 0, rate=0.11)
    [comparison] = compare(read_runs([tmp_path]), target=2.0)
    assert headline(comparison).startswith(f"{SIMILAR} muon 0.9777")
    write_run(tmp_path, "lbfgs", 0, rate=0.2, iterations=400)
    write_run(tmp_path, "soap", 0, rate=0.05)
    [comparison] = compare(read_runs([tmp_path]), target=2.0)
    assert "soap" not in headline(comparison)


def test_a_target_reached_before_the_first_update_has_no_ratio(tmp_path):
    write_run(tmp_path, "snopt", 0, rate=0.3)
    write_run(tmp_path, "adam", 0, rate=0.1)
    for path in tmp_path.rglob("snopt-seed0/metrics.jsonl"):
        path.write_text(path.read_text("utf-8").replace('"accuracy": 0.0', '"accuracy": 0.95'))
    [comparison] = compare(read_runs([tmp_path]), target=0.9)
    shortest = "Shortest time to valid accuracy ≥ 0.9: snopt 0 s; adam took 12.5 s."
    assert headline(comparison) == shortest


def test_large_seeds_and_iterations_keep_their_digits(tmp_path):
    step = {"kind": "step", "iteration": 12_345_678, "seconds": 1.0, "loss": 1.0}
    write_run(tmp_path, "adam", 98_765_432, lines=[step])
    [row] = runs_table(compare(read_runs([tmp_path]))).rows
    assert (row[2], row[4]) == ("98765432", "12345678")


def test_headline_says_who_ended_best_if_that_was_not_the_fastest(tmp_path):
    for name, per_iteration, final in (("snopt", 0.25, 0.8), ("adam", 0.5, 0.9), ("sgd", 0.5, 0.7)):
        lines = lines_of(per_iteration=per_iteration)
        lines[-1]["final"] = {"test": {"accuracy": final}}
        write_run(tmp_path, name, lines=lines)
    [comparison] = compare(read_runs([tmp_path]), target=0.7)
    assert headline(comparison) == (
        "Shortest time to valid accuracy ≥ 0.7: snopt 3.75 s; adam took 2.00 times as long. "
        "Best final test accuracy: adam 0.9."
    )
    [comparison] = compare(
        read_runs([tmp_path / "spirals" / n for n in ("adam-seed0", "sgd-seed0")])
    )
    assert headline(comparison).endswith("Best final test accuracy: adam 0.9.")


def test_headline_of_single_runs_does_not_speak_of_seeds(tmp_path):
    for name, rate in (("snopt", 0.3), ("adam", 0.2), ("sgd", 0.01)):
        write_run(tmp_path, name, rate=rate)
    [comparison] = compare(read_runs([tmp_path]), target=0.7)
    assert headline(comparison).endswith(" sgd did not reach it.")


def test_headline_of_one_run_and_of_none(tmp_path):
    write_run(tmp_path, lines=lines_of(rate=0.1))
    [comparison] = compare(read_runs([tmp_path]))
    assert headline(comparison) == "Test accuracy: adam 0.9717."
    write_run(tmp_path / "b", lines=[{"kind": "start"}])
    [comparison] = compare(read_runs([tmp_path / "b"]))
    assert headline(comparison) == "Nothing has been evaluated yet."


@pytest.mark.parametrize(
    ("stat", "text"),
    [
        (Stat(0.98213, 0.00321, 3), "0.9821 ± 0.0032"),
        (Stat(-3.84988, 0.00009, 3), "-3.850 ± 9e-05"),
        (Stat(1234.5, 67.8, 3), "1234 ± 68"),
        (Stat(1e-5, 2e-6, 3), "1e-05 ± 2e-06"),
        (Stat(0.0, 0.0, 2), "0"),
        (None, "-"),
    ],
)
def test_numbers_have_the_digits_that_mean_something(stat, text):
    assert stat_text(stat) == text
