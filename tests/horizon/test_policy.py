"""Steps and their bounds, as plain numbers."""

import pytest

from snopt.base.errors import InvalidTimes, UnknownName
from snopt.horizon.policy import (
    POLICIES,
    Bounds,
    feedback,
    gradient,
    newton,
    policy_function,
)


def test_policies_differ_by_curvature_and_feedback():
    assert gradient(2.0, 4.0, 1.0) == 2.0
    assert newton(2.0, 4.0, 1.0) == 0.5
    assert feedback(2.0, 4.0, 1.0) == 0.75
    assert set(POLICIES) == {"feedback", "newton", "gradient"}


def test_a_policy_is_a_name_or_a_function():
    def own(Q_T, Q_TT, Q_Tu_du):
        return Q_T

    assert policy_function(own) is own
    assert policy_function("feedback") is feedback
    with pytest.raises(UnknownName, match="did you mean 'newton'"):
        policy_function("newtno")


@pytest.mark.parametrize("policy", [newton, feedback])
def test_negative_curvature_still_descends(policy):
    assert policy(2.0, -4.0, 0.0) == policy(2.0, 4.0, 0.0) > 0


def test_a_change_is_limited_both_ways():
    bounds = Bounds(0.1, max_change=0.2)
    for wanted, length in ((5.0, 1.2), (-5.0, 0.8), (0.1, 1.1)):
        assert bounds.move(1.0, 0.0, wanted) == pytest.approx(length)


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_bounds_hold_in_either_direction_of_time(direction):
    bounds, t0 = Bounds(0.1, 3.0), 5.0
    T = t0 + direction
    assert bounds.move(T, t0, 0.5) == pytest.approx(t0 + 1.5 * direction)
    assert bounds.move(T, t0, -7.0) == pytest.approx(t0 + 0.1 * direction)
    assert bounds.move(T, t0, 7.0) == pytest.approx(t0 + 3.0 * direction)


@pytest.mark.parametrize("T", [1.0, 1.05, 0.95, 9.0])
def test_a_horizon_out_of_bounds_is_refused(T):
    with pytest.raises(InvalidTimes, match="change one of them"):
        Bounds(0.1, 3.0).check(T, 1.0)
