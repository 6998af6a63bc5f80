"""The time loop: against closed forms, and alone with a stub for a stepper."""

import math

import pytest
import torch

import snopt
from snopt.base.errors import MaxStepsExceeded, NonFiniteState, StepSizeUnderflow
from snopt.ode.controller import Controller
from snopt.ode.solve import fit, solve
from tests.problems import PROBLEMS

ADAPTIVE = ["bosh3", "dopri5", "tsit5", "dopri8"]


class StubStepper:
    """Adds ``h`` to the state; the error ratio is a function of the step."""

    adaptive = True
    error_order = 5

    def __init__(self, ratio=lambda t, h: 0.5):
        self.ratio, self.nfe, self.tried, self.accepted = ratio, 0, [], 0

    def start(self, t, x):
        self.started = t

    def guess(self, span):
        return 0.1

    def attempt(self, t, h, x):
        self.tried.append((t, h))
        self.nfe += 1
        return x + h, self.ratio(t, h)

    def interpolate(self, theta):
        return torch.tensor([theta])

    def accept(self):
        self.accepted += 1


def test_a_step_is_kept_only_when_it_is_accepted():
    stepper = StubStepper(lambda t, h: 2.0 if abs(h) > 0.3 else 0.5)
    told = []
    solution = solve(stepper, torch.zeros(1), [0.0, 1.0], first_step=1.0, on_step=told.append)
    assert solution.stats.rejected >= 1
    assert solution.stats.accepted == stepper.accepted == len(told)
    assert solution.stats.accepted + solution.stats.rejected == len(stepper.tried)
    assert all(abs(step.h) <= 0.3 for step in told)
    assert sum(step.h for step in told) == pytest.approx(1.0)
    assert told[-1].t1 == 1.0


def test_requested_times_do_not_change_the_steps():
    plain, dense = StubStepper(), StubStepper()
    solve(plain, torch.zeros(1), [0.0, 1.0])
    solution = solve(dense, torch.zeros(1), [0.0, 0.05, 0.31, 0.32, 1.0])
    assert plain.tried == dense.tried
    assert len(solution.states) == 5


def test_stops_are_landed_on_exactly_and_jumps_restart_the_stepper():
    stepper, told = StubStepper(), []
    solve(
        stepper, torch.zeros(1), [0.0, 1.0],
        stops=[0.123, 0.7, 1.0], jumps=frozenset([0.7]), on_step=told.append,
    )  # fmt: skip
    assert {0.123, 0.7, 1.0} <= {step.t1 for step in told}
    assert stepper.started == pytest.approx(0.7)
    assert stepper.started > 0.7


def test_a_first_step_is_tried_first_and_the_last_one_is_handed_on():
    stepper = StubStepper(lambda t, h: (abs(h) / 0.3) ** 5)
    solution = solve(stepper, torch.zeros(1), [0.0, 10.0], first_step=0.25)
    assert stepper.tried[0] == (0.0, 0.25)
    assert 0.2 < solution.stats.last_step < 0.3


def test_a_step_cut_short_by_the_end_does_not_shrink_the_next_solve():
    stepper = StubStepper(lambda t, h: 1e-12)
    solution = solve(stepper, torch.zeros(1), [0.0, 1e-3], first_step=1.0)
    assert solution.stats.first_step == 1.0


@pytest.mark.parametrize(("h", "remaining"), [(0.3, 1.0), (0.5, 1.0), (0.99, 1.0), (2.0, 1.0)])
def test_fitting_never_overshoots_and_leaves_no_sliver(h, remaining):
    size, landing = fit(h, remaining)
    assert size <= remaining
    assert landing == (size == remaining)
    assert landing or remaining - size >= min(size, h) * 0.999


def test_the_controller_shrinks_after_a_failure_and_grows_after_success():
    control = Controller()
    assert control.factor(10.0, 1.0, 5) < 1.0 < control.factor(1e-3, 1.0, 5)
    assert control.factor(math.nan, 1.0, 5) == control.dfactor
    assert control.factor(0.0, 1.0, 5) == control.ifactor
    # Proportional part: the same error after a smaller one means errors are growing.
    assert control.factor(0.5, 0.1, 5) < control.factor(0.5, 0.5, 5)
    assert control.factor(1e9, 1.0, 5) == control.dfactor
    assert control.factor(0.5, 0.0, 5) == control.factor(0.5, 1e-4, 5) > control.dfactor
    # After a step of min_step, which is accepted with any error, a rejected one does not grow.
    assert control.factor(1.1, 1e6, 5) == 1.0


@pytest.mark.parametrize("problem", sorted(PROBLEMS))
@pytest.mark.parametrize("method", ADAPTIVE)
def test_adaptive_methods_meet_their_tolerance(method, problem):
    case = PROBLEMS[problem]
    times = [0.0, 0.3 * case.t1, 0.31 * case.t1, case.t1]
    for tol in (1e-4, 1e-8):
        with torch.no_grad():
            states = snopt.odeint(case.field, case.x0, times, rtol=tol, atol=tol, method=method)
        for t, state in zip(times, states, strict=True):
            assert torch.linalg.vector_norm(state - case.solution(t)) < 60 * tol


@pytest.mark.parametrize("method", ADAPTIVE)
def test_a_finer_tolerance_takes_more_evaluations_and_none_is_wasted(method):
    case, counts = PROBLEMS["turning"], []
    for tol in (1e-3, 1e-6, 1e-9):
        calls = 0

        def field(t, x):
            nonlocal calls
            calls += 1
            return case.field(t, x)

        stats = snopt.SolveStats()
        snopt.odeint(field, case.x0, [0.0, 2.0], rtol=tol, atol=tol, method=method, stats=stats)
        assert stats.nfe_forward == calls
        counts.append(calls)
    assert counts == sorted(set(counts))


def test_blow_up_ends_in_an_error_that_says_where():
    with pytest.raises((StepSizeUnderflow, NonFiniteState)) as caught:
        snopt.odeint(lambda t, x: x * x, torch.ones(1), [0.0, 2.0])
    assert caught.value.t == pytest.approx(1.0, abs=1e-3)
    assert "RMS of the state" in str(caught.value)
    assert "bound the field" in str(caught.value)


@pytest.mark.parametrize("method", ["dopri5", "dopri8", "rk4", "euler"])
def test_a_field_that_returns_nan_is_named(method):
    with pytest.raises(NonFiniteState, match="NaN"):
        snopt.odeint(lambda t, x: x * math.nan, torch.ones(2), [0.0, 1.0], method=method)


def test_a_field_that_turns_nan_midway_is_named_with_the_time():
    def field(t, x):
        return torch.where(t > 0.5, math.nan, 1.0) * torch.ones_like(x)

    with pytest.raises(NonFiniteState) as caught:
        snopt.odeint(field, torch.ones(2), [0.0, 1.0], rtol=1e-4, atol=1e-4)
    assert caught.value.t == pytest.approx(0.5, abs=1e-2)


def test_a_stiff_field_ends_within_max_num_steps():
    with pytest.raises(MaxStepsExceeded, match="max_num_steps"):
        snopt.odeint(
            lambda t, x: -1e6 * (x - torch.cos(t)), torch.zeros(1), [0.0, 1.0],
            rtol=1e-6, atol=1e-6, options={"max_num_steps": 200},
        )  # fmt: skip


def test_an_overflow_in_a_trial_step_only_shortens_the_step():
    """exp overflows if the first step is far too long, yet the solution is tame."""
    x = snopt.odeint(
        lambda t, x: -torch.exp(5 * x), torch.full((1,), 3.0, dtype=torch.float64), [0.0, 1.0],
        rtol=1e-6, atol=1e-6, options={"first_step": 0.5},
    )  # fmt: skip
    exact = -math.log(math.exp(-15.0) + 5.0) / 5.0
    assert x[-1].item() == pytest.approx(exact, abs=1e-4)


def test_options_bound_the_steps():
    case, told = PROBLEMS["turning"], snopt.SolveStats()
    snopt.odeint(case.field, case.x0, [0.0, 2.0], rtol=1e-3, atol=1e-3, stats=told,
                 options={"max_step": 0.05})  # fmt: skip
    assert told.accepted >= 40


def test_step_t_and_jump_t_make_a_discontinuous_field_cheap():
    def field(t, x):
        return torch.where(t < 0.5, 1.0, -3.0) * torch.ones_like(x)

    x0, counts = torch.zeros(1, dtype=torch.float64), {}
    for name in ("none", "jump_t"):
        stats = snopt.SolveStats()
        options = {} if name == "none" else {name: torch.tensor([0.5], dtype=torch.float64)}
        x = snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-7, atol=1e-9, options=options, stats=stats)
        counts[name] = stats.nfe_forward
        assert x[-1].item() == pytest.approx(-1.0, abs=1e-5)
    assert counts["jump_t"] < 0.5 * counts["none"]


def test_float32_stays_float32_and_is_as_accurate_as_it_can_be():
    seen = set()

    def field(t, x):
        seen.update((t.dtype, x.dtype))
        return -x

    x = snopt.odeint(field, torch.ones(3), [0.0, 1.0], rtol=1e-6, atol=1e-6)
    assert seen == {torch.float32}
    assert x.dtype == torch.float32
    assert abs(x[-1, 0].item() - math.exp(-1)) < 2e-6


def test_a_step_that_ends_next_to_a_jump_is_followed_by_one_to_the_jump():
    """The distance to the jump has a far finer spacing than the times have."""
    x, t = torch.ones(1, dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)
    near = torch.tensor([1.0 - 1e-13], dtype=torch.float64)
    options = {"step_t": near, "jump_t": torch.ones(1, dtype=torch.float64)}
    out = snopt.odeint(lambda t, x: -x if t < 1 else x, x, t, rtol=1e-9, options=options)
    assert abs(float(out[-1]) - 1.0) < 1e-6
