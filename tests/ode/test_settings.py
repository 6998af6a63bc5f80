import math
import tracemalloc

import numpy
import pytest
import torch

import snopt
from snopt.base.errors import InvalidOption, InvalidTimes, MaxStepsExceeded, UnknownName
from snopt.ode.settings import Settings


@pytest.mark.parametrize(
    ("t", "words"),
    [
        ([], "at least a start"),
        ([math.inf], "at least a start"),
        (torch.zeros(2, dtype=torch.complex64), "real numbers"),
        (torch.tensor([0, 1, 1]), "strictly monotone"),
        ([0.0, 0.0], "strictly monotone"),
        ([0.0, 1.0, 1.0], "t\\[1\\] = 1.0"),
        ([0.0, 1.0, 0.5], "strictly monotone"),
        ([0.0, math.nan], "finite"),
        (torch.zeros(2, 2), "one-dimensional"),
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
        ({"method": "fehlberg2", "options": {"max_steppes": 3}}, "unknown option 'max_steppes'"),
    ],
)
def test_names_that_nobody_knows_are_refused(kwargs, words):
    with pytest.raises(UnknownName, match=words):
        snopt.odeint(lambda t, x: -x, torch.ones(1), [0.0, 1.0], **kwargs)


RK4 = {"method": "rk4"}


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"rtol": -1.0}, "rtol = -1.0"),
        ({"atol": math.nan}, "atol = nan"),
        ({"rtol": "small"}, "rtol = 'small'"),
        ({"rtol": torch.tensor([1e-3, -1e-3])}, "not a tolerance"),
        ({"atol": torch.tensor(1e-3, requires_grad=True)}, "requires a gradient"),
        ({"options": {"safety": 0.0}}, "safety = 0.0 must be above 0"),
        ({"options": {"ifactor": 0.5}}, "ifactor = 0.5 must be at least 1"),
        ({"options": {"dfactor": 2.0}}, "dfactor = 2.0 must be above 0 and at most 1"),
        ({"options": {"max_num_steps": 0}}, "max_num_steps = 0 must be at least 1"),
        ({"options": {"min_step": 1.0, "max_step": 0.5}}, "min_step = 1.0 is larger than max_step"),
        ({"options": {"first_step": "long"}}, "first_step = 'long' must be a number"),
        ({"options": {"jump_t": 0.5}}, "jump_t = 0.5 must be a one-dimensional tensor"),
        ({"options": {"norm": "seminorm"}}, "norm = 'seminorm' must be a function"),
        ({"options": {"dtype": torch.float32}}, "dtype = torch.float32 must be torch.float64"),
        ({**RK4, "options": {"step_size": -0.1}}, "step_size = -0.1 must be a finite positive"),
        ({**RK4, "options": {"step_size": 1e-300}}, "too small to be resolved"),
        ({**RK4, "options": {"interp": "quintic"}}, "'linear' or 'cubic'"),
        ({**RK4, "options": {"perturb": "next"}}, "perturb = 'next'"),
        ({**RK4, "options": {"grid_constructor": [0.0, 1.0]}}, "must be a function"),
        (
            {**RK4, "options": {"grid_constructor": lambda f, y, t: t, "step_size": 0.1}},
            "grid_constructor and step_size exclude each other",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(kwargs, words):
    with pytest.raises(InvalidOption, match=words):
        snopt.odeint(lambda t, x: -x, torch.ones(1), [0.0, 1.0], **kwargs)


def test_a_fixed_step_ends_at_the_last_time_in_either_direction():
    settings = Settings.parse("euler", 0, 0, {"step_size": 0.3})
    assert list(settings.landing([0.0, 1.0])) == pytest.approx([0.3, 0.6, 0.9, 1.0])
    assert list(settings.landing([1.0, 0.0])) == pytest.approx([0.7, 0.4, 0.1, 0.0])
    assert len(list(Settings.parse("euler", 0, 0, {"step_size": 0.1}).landing([0.0, 1.0]))) == 10


def test_stops_fall_among_the_fixed_steps():
    settings = Settings.parse("euler", 0, 0, {"step_size": 0.25, "step_t": [0.3, 0.5, 2.0]})
    assert list(settings.landing([0.0, 1.0])) == [0.25, 0.3, 0.5, 0.75, 1.0]
    assert list(settings.landing([1.0, 0.0])) == [0.75, 0.5, 0.3, 0.25, 0.0]


def test_ten_million_steps_are_not_listed_before_the_first():
    stats = snopt.SolveStats()
    tracemalloc.start()
    try:
        with pytest.raises(MaxStepsExceeded, match="max_num_steps"), torch.no_grad():
            snopt.odeint(
                lambda t, x: -x, torch.ones(1), [0.0, 1.0], method="euler", stats=stats,
                options={"step_size": 1e-7, "max_num_steps": 50},
            )  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1e6


@pytest.mark.parametrize("adjoint", ["direct", "backsolve"])
def test_fixed_steps_that_nobody_differentiates_keep_nothing(adjoint):
    """One kept state per step would be more than five megabytes here."""
    field, options = torch.nn.Linear(1, 1), {"step_size": 2e-4}
    function = lambda t, x: field(x)  # noqa: E731
    grad = torch.enable_grad if adjoint == "backsolve" else torch.no_grad
    tracemalloc.start()
    try:
        with grad():
            x = snopt.odeint(function, torch.ones(1), [0.0, 1.0], method="euler", options=options,
                             adjoint=adjoint, adjoint_params=tuple(field.parameters()))  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert torch.isfinite(x).all()
    assert peak < 1e6


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
    with pytest.raises(InvalidOption, match="1 tolerances for a state of 2"):
        snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-5, atol=(1e-5,))


def test_rounding_adds_no_step_to_a_grid():
    """(0.4 - 0.1) / 0.1 is a little more than three."""
    stops = list(Settings.parse("euler", 0.0, 0.0, {"step_size": 0.1}).landing([0.1, 0.4]))
    assert stops == pytest.approx([0.1 * i for i in (2, 3, 4)])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"rtol": 0, "atol": 0.0}, "no step has an error of zero"),
        ({"rtol": torch.full((5,), 1e-6)}, r"shape \(5,\) does not broadcast to \(4, 3\)"),
        ({"atol": torch.full((2, 4, 3), 1e-6)}, "does not broadcast"),
        ({"options": {"jump_t": torch.tensor([0.5, math.nan])}}, "jump_t .* has a NaN"),
    ],
)
def test_tolerances_and_stops_that_fit_nothing_are_refused(kwargs, words):
    with pytest.raises(InvalidOption, match=words):
        snopt.odeint(lambda t, x: -x, torch.ones(4, 3), [0.0, 1.0], **kwargs)


@pytest.mark.parametrize("tol", [(1e-4,), [1e-4], numpy.float32(1e-4), torch.full((4, 1), 1e-4)])
def test_a_tolerance_has_several_forms(tol):
    x = torch.ones(4, 3)
    found = snopt.odeint(lambda t, x: -x, x, [0.0, 1.0], rtol=tol, atol=1e-4)
    torch.testing.assert_close(found[-1], x * math.exp(-1.0), rtol=0, atol=1e-3)
