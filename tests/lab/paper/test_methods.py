"""The main comparison: the best rival, when it is reached, and who is first."""

import pytest

from snopt.lab.paper.curves import last_gain
from snopt.lab.paper.headline import (
    budget_of,
    counts,
    headline,
    remarks,
    shares,
    target_of,
    until,
    verdict,
    within,
)
from snopt.lab.report.summary import Stat


def arm(*curves, tests=None, mode="max", seeds=3, status="finished", pace=2.0):
    """A method with a validation curve per seed: ten updates and two seconds per point."""
    metric = "accuracy" if mode == "max" else "nll"
    runs = [
        {
            "seed": k,
            "status": status,
            "test": curve[-1] if tests is None else tests[k],
            "iteration": [10.0 * (i + 1) for i in range(len(curve))],
            "seconds": [pace * (i + 1) for i in range(len(curve))],
            "valid": list(curve),
        }
        for k, curve in enumerate(curves)
    ]
    return {"metric": metric, "mode": mode, "seeds": seeds, "runs": runs}


def test_rivals_are_all_but_snopt_and_more_or_less_is_better():
    curves = {"SNOpt (default)": [0.99], "Adam": [0.5, 0.8, 0.7], "SOAP": [0.6, 0.75]}
    assert target_of({n: arm(c) for n, c in curves.items()}) == ("Adam", 0.8, 4.0)
    assert target_of({n: arm(c, mode="min") for n, c in curves.items()}) == ("Adam", 0.5, 2.0)
    assert target_of({"SNOpt (default)": arm([0.5])}) is None


def test_the_time_is_that_of_the_first_value_as_good_as_the_rivals_best():
    found = arm([0.6, 0.81, 0.9, 0.9])
    assert (until(found, 0.8), until(found, 0.8, "iteration")) == (4.0, 20.0)
    assert until(arm([0.1, 0.2]), 0.8) is None
    assert until(arm([3.0, 1.0], mode="min"), 1.5) == 4.0


@pytest.mark.parametrize(
    ("values", "gain"),
    [([0.1, 0.5, 0.9, 0.903], 0.0037), ([0.1, 0.5, 0.8, 0.9], 0.125), ([0.5, 0.4, 0.3, 0.2], 0)],
)
def test_a_curve_is_flat_if_its_last_quarter_adds_little(values, gain):
    assert last_gain(values, "max") == pytest.approx(gain, abs=1e-4)


@pytest.mark.parametrize(
    ("ours", "sign", "expected"),
    [
        (Stat(0.95, 0.01, 3), 1, "first"),
        (Stat(0.95, 0.01, 3), -1, "behind"),
        (Stat(0.91, 0.01, 3), 1, "tied"),
        (Stat(0.85, 0.01, 2), 1, "behind"),
        (Stat(0.95, 0.0, 1), 1, None),
        (None, 1, None),
    ],
)
def test_first_tied_and_behind_are_told_by_the_deviations_and_need_two_seeds(ours, sign, expected):
    rivals = {"Adam": Stat(0.9, 0.01, 3), "SGD": Stat(0.9, 0.01, 3)}
    assert (
        verdict({"SNOpt (default)": ours, "SNOpt (tuned)": Stat(0.99, 0.0, 3), **rivals}, sign)
        == expected
    )


def test_equal_seconds_are_those_of_the_fastest_method_that_made_all_updates():
    fast, slow = arm([0.5, 0.6]), arm([0.3, 0.4, 0.9], pace=4.0)
    cut = arm([0.1], status="diverged")
    assert budget_of([fast, slow, cut]) == 4.0
    assert (within(fast, 4.0).mean, within(slow, 4.0).mean) == (0.6, 0.3)
    assert within(slow, 1.0) is None


def compared():
    """SNOpt is first on MNIST at the end, and behind in equal seconds; Circle has one seed."""
    mnist = {
        "Adam": arm([0.5, 0.8], [0.5, 0.81], [0.5, 0.79]),
        "SGD": arm([0.4, 0.5], [0.4, 0.52], [0.4, 0.51]),
        "SNOpt (default)": arm([0.6, 0.7, 0.9], [0.6, 0.7, 0.91], [0.6, 0.7, 0.92]),
    }
    circle = {
        "Adam": arm([2.0, 1.0], mode="min"),
        "SNOpt (default)": arm([2.0, 0.9], mode="min"),
    }
    return {"MNIST": mnist, "Circle": circle}


def test_the_headline_has_a_row_per_data_set_with_runs_and_says_what_is_partial():
    table = headline(compared())
    assert table.columns[:4] == ["data set", "Adam", "SGD", "SNOpt (default)"]
    mnist, circle = table.rows
    assert mnist == [
        "MNIST, %", "80.00 ± 1.00", "51.00 ± 1.00", "**91.00 ± 1.00**", "6; Adam 4",
    ]  # fmt: skip
    # One seed has no deviation: nothing is bold.
    assert circle == [
        "Circle, nats", "1.00 (1 of 3 seeds)", "-", "0.90 (1 of 3 seeds)", "4; Adam 4",
    ]  # fmt: skip


def test_remarks_are_on_rivals_that_still_improve_what_is_missing_and_parts_of_data():
    rising, missing = remarks(compared(), parts=True)
    assert rising.endswith("improving at the end on: MNIST (Adam), Circle (Adam).")
    assert missing == "Not run yet: SVHN, CIFAR10, SpoAD, ArtWR, CharT, Gas, Miniboone."
    flat = {"SVHN": {"Adam": arm([0.1, 0.9, 0.9, 0.9])}}
    assert [text.partition(":")[0] for text in remarks(flat, parts=True)] == [
        "Not run yet", "Parts of data",
    ]  # fmt: skip
    assert len(remarks(flat, parts=False)) == 1


def test_a_small_difference_is_not_bold():
    close = {"Adam": arm([0.90], [0.92]), "SNOpt (default)": arm([0.91], [0.93])}
    assert "**" not in str(headline({"MNIST": close}).rows)


def test_counts_are_of_the_end_and_of_equal_seconds():
    text = counts(compared())
    at_end, in_time = text.split("Validation")
    assert "first on 1 (MNIST); tied on 0; behind on 0, of 1 data sets" in at_end
    assert "first on 0; tied on 0; behind on 1 (MNIST), of 1 data sets" in in_time


def test_a_method_whose_runs_all_failed_says_so():
    failed = arm([0.1], tests=[None], status="too stiff")
    rows = headline({"MNIST": {"SGD": failed, "SNOpt (default)": arm([0.9])}}).rows
    assert rows[0][1] == "failed"


def test_shares_are_seconds_to_the_best_value_of_each_method_over_its_own():
    methods = {
        "Adam": arm([0.5, 0.6, 0.7, 0.8]),  # 0.8 after 8 seconds
        "SOAP": arm([0.5, 0.9, 0.85]),  # 0.9 after 4 seconds
        "Muon": arm([0.95]),
        "SNOpt (default)": arm([0.6, 0.8, 0.9]),
    }
    table = shares({"MNIST": methods, "Gas": {"Adam": arm([3.0, 1.0], mode="min")}})
    assert table.columns == ["data set", "Adam", "Muon", "SOAP"]
    assert table.rows == [
        ["MNIST", "0.50", "never", "1.50"],
        ["Gas", None, None, None],
        ["half the seconds or less", "1 of 1", "0 of 1", "0 of 1"],
    ]
