import math

import pytest
import torch

import snopt
from snopt.base.errors import InvalidTimes, UnknownName
from snopt.ode.settings import Settings


@pytest.mark.parametrize(
    ("t", "words"),
    [
        ([0.0], "at least one later"),
        ([0.0, 0.0], "strictly monotone"),
        ([0.0, 1.0, 1.0], "t\\[1\\] = 1.0"),
        ([0.0, 1.0, 0.5], "strictly monotone"),
        ([0.0, math.nan], "finite"),
        (torch.zeros(2, 2), "one-dimensional"),
        (torch.tensor([0, 1]), "floating-point"),
    ],
)
def test_times_that_cannot_be_walked_through_are_refused(t, words):
    with pytest.raises(InvalidTimes, match=words):
        snopt.odeint(lambda t, x: -x, torch.ones(1), t)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"method": "dorpi5"}, "did you mean 'dopri5'"),
        ({"adjoint": "chekpoint"}, "did you mean 'checkpoint'"),
        ({"options": {"max_steppes": 3}}, "unknown option 'max_steppes'"),
        ({"method": "rk4", "options": {"step_size": -0.1}}, "positive"),
        ({"rtol": -1.0}, "rtol = -1.0"),
    ],
)
def test_names_and_values_that_make_no_sense_are_refused(kwargs, words):
    with pytest.raises(UnknownName, match=words):
        snopt.odeint(lambda t, x: -x, torch.ones(1), [0.0, 1.0], **kwargs)


def test_a_fixed_step_ends_at_the_last_time_in_either_direction():
    settings = Settings.parse("euler", 0, 0, {"step_size": 0.3})
    assert settings.landing([0.0, 1.0]) == pytest.approx([0.3, 0.6, 0.9, 1.0])
    assert settings.landing([1.0, 0.0]) == pytest.approx([0.7, 0.4, 0.1, 0.0])
    assert len(Settings.parse("euler", 0, 0, {"step_size": 0.1}).landing([0.0, 1.0])) == 10


def test_a_users_grid_is_followed():
    seen = []

    def field(t, x):
        seen.append(t.item())
        return -x

    snopt.odeint(
        field, torch.ones(1), torch.tensor([0.0, 1.0]), method="euler",
        options={"grid_constructor": lambda func, y0, t: torch.tensor([0.0, 0.25, 0.5, 1.0])},
    )  # fmt: skip
    assert seen == [0.0, 0.25, 0.5]


def test_tolerances_can_be_given_a_part():
    """The second part may be as wrong as it likes."""
    field = lambda t, x: (-x[0], torch.cos(50.0 * t) * torch.ones_like(x[1]))  # noqa: E731
    x0 = (torch.ones(1), torch.zeros(1))
    counts = []
    for atol in ((1e-5, 1e-5), (1e-5, 1e3)):
        stats = snopt.SolveStats()
        snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-5, atol=atol, stats=stats)
        counts.append(stats.nfe_forward)
    assert counts[1] < 0.5 * counts[0]
    with pytest.raises(UnknownName, match="1 tolerances for a state of 2"):
        snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-5, atol=(1e-5,))
