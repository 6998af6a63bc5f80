"""Seconds to an accuracy: turns, the first time a target is reached, medians."""

import pytest

import snopt
from benchmarks.peers.targets import reached, side_by_side, summarised

CURVE = [(5, 1.0, 60.0), (10, 2.0, 91.0), (15, 3.0, 89.0), (20, 4.0, 96.0)]


def test_target_is_reached_at_the_first_point_at_or_above_it():
    assert reached(CURVE, 91.0) == {"iterations": 10, "seconds": 2.0}
    assert reached(CURVE, 97.0) is None


def test_median_is_given_only_if_every_seed_got_there():
    there = [{"iterations": n, "seconds": n / 10} for n in (30, 10, 20)]
    assert summarised(there)["iterations"] == 20
    found = summarised([*there, None])
    assert (found["reached"], found["iterations"], found["seconds"]) == (3, None, None)


def test_everyone_learns_in_turn_and_stops_at_the_goal():
    order = []

    def run(name, points):
        for point in points:
            order.append(name)
            yield point

    curves = side_by_side({"fast": run("fast", CURVE[:2]), "slow": run("slow", CURVE)}, goal=90.0)
    assert curves == {"fast": CURVE[:2], "slow": CURVE[:2]}
    assert order == ["fast", "slow", "slow", "fast"]


def test_a_run_that_cannot_be_solved_ends_where_it_stopped():
    def stiff():
        yield CURVE[0]
        raise snopt.SolveError("too stiff", t=0.5, step=1e-9, norm=1.0)

    assert side_by_side({"stiff": stiff()}, goal=90.0) == {"stiff": CURVE[:1]}


def test_a_run_that_ends_below_the_goal_is_kept():
    assert side_by_side({"poor": iter(CURVE[:1])}, goal=90.0) == {"poor": [pytest.approx(CURVE[0])]}
