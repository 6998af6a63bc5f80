"""Solves that end at an event, compared with torchdiffeq itself and with closed forms."""

import math

import pytest
import torch
import torchdiffeq
from torch import nn

import snopt
from snopt.base.errors import GradientError, InvalidOption, InvalidTimes, MaxStepsExceeded

BOTH = [torchdiffeq, snopt]
DOUBLE = {"dtype": torch.float64}
FINE = {"rtol": 1e-9, "atol": 1e-11}


class Fall(nn.Module):
    """A ball under gravity and drag; the state is (height, speed)."""

    def __init__(self):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(9.8, **DOUBLE))

    def forward(self, t, x):
        speed = x[1]
        return speed, -self.g - 0.1 * speed + 0.2 * torch.sin(t)


class Turn(nn.Module):
    """Rotation: a single tensor."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.3, **DOUBLE))

    def forward(self, t, x):
        return self.w * torch.stack([-x[1], x[0]])


def ground(t, x):
    return x[0] - 0.3 * torch.sin(3 * t)


def leaf(*values):
    return tuple(torch.tensor(value, requires_grad=True, **DOUBLE) for value in values)


def fall(lib, reverse=False, **kwargs):
    """Time, state, and the gradients of a function of both."""
    field, x0, (t0,) = Fall(), leaf(10.0, -3.0 if reverse else 1.0), leaf(0.5)
    t, x = lib.odeint_event(field, x0, t0, event_fn=ground, reverse_time=reverse, **kwargs)
    (2 * t + x[1][-1] ** 2 + x[0][-1]).backward()
    assert all(part.shape == (2,) for part in x)
    values = (t.detach(), x[0].detach(), x[1].detach())
    return values, (x0[0].grad, x0[1].grad, t0.grad, field.g.grad)


def check(ours, theirs, values, gradients):
    torch.testing.assert_close(ours[0], theirs[0], rtol=values, atol=values)
    torch.testing.assert_close(ours[1], theirs[1], rtol=gradients, atol=gradients)


ADJOINTS = ["checkpoint", "direct", "backsolve"]


@pytest.fixture(scope="module")
def reference():
    """By the continuous adjoint: torchdiffeq's tape misses part of the start time's gradient."""
    return {
        reverse: fall(torchdiffeq, reverse, odeint_interface=torchdiffeq.odeint_adjoint, **FINE)
        for reverse in (False, True)
    }


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("adjoint", ADJOINTS)
@pytest.mark.parametrize("method", ["dopri5", "dopri8", "tsit5"])
def test_time_state_and_gradients_are_torchdiffeqs(reference, adjoint, method, reverse):
    ours = fall(snopt, reverse, adjoint=adjoint, method=method, **FINE)
    check(ours, reference[reverse], 1e-7, 1e-6)


@pytest.mark.parametrize(
    ("kwargs", "values", "gradients"),
    [
        ({"adjoint": "reversible", "rtol": 1e-6, "atol": 1e-6}, 1e-3, 1e-3),
        ({"method": "adaptive_heun", "rtol": 1e-6, "atol": 1e-6}, 1e-4, 1e-4),
        ({"method": "bosh3", "rtol": 1e-8, "atol": 1e-8}, 1e-5, 1e-5),
        ({"odeint_interface": snopt.odeint_adjoint, **FINE}, 1e-7, 1e-6),
        ({"odeint_interface": torchdiffeq.odeint, **FINE}, 1e-7, 1e-4),
        ({"odeint_interface": torchdiffeq.odeint_adjoint, **FINE}, 1e-7, 1e-6),
    ],
)
def test_other_adjoints_black_boxes_and_interfaces(reference, kwargs, values, gradients):
    check(fall(snopt, **kwargs), reference[False], values, gradients)


def test_torchdiffeqs_odeint_event_accepts_our_interface(reference):
    ours = fall(torchdiffeq, odeint_interface=snopt.odeint, **FINE)
    check(ours, reference[False], 1e-7, 1e-6)


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
@pytest.mark.parametrize("interp", ["linear", "cubic"])
def test_fixed_steps_find_the_same_event(method, interp):
    """The same steps and the same interpolation: the same numbers."""
    kwargs = {"method": method, "options": {"step_size": 0.05, "interp": interp}, "atol": 1e-12}
    (ours, d_ours), (theirs, d_theirs) = (fall(lib, **kwargs) for lib in (snopt, torchdiffeq))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    for i in (0, 1, 3):  # of the start time torchdiffeq's tape sees a part only
        torch.testing.assert_close(d_ours[i], d_theirs[i], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("lib", BOTH)
@pytest.mark.parametrize("name", ["odeint", "odeint_adjoint"])
def test_the_event_of_odeint_is_differentiated_at_a_fixed_time(lib, name):
    """x' = w J x: the state moves by t* J x when w changes, and the event's time not at all."""
    field, x0 = Turn(), torch.tensor([1.0, 0.0], requires_grad=True, **DOUBLE)
    t, x = getattr(lib, name)(
        field, x0, torch.tensor([0.0, 1.0], **DOUBLE), event_fn=lambda t, x: x[0] - 0.5, **FINE
    )
    assert t.item() == pytest.approx(math.acos(0.5) / 1.3, abs=1e-8)
    assert lib is torchdiffeq or not t.requires_grad
    assert x.shape == (2, 2)
    x[-1, 0].backward()
    assert field.w.grad.item() == pytest.approx(-t.item() * math.sin(math.acos(0.5)), abs=1e-6)


@pytest.mark.parametrize("lib", BOTH)
def test_several_events_end_at_the_first(lib):
    for bounds, expected in (((0.5, 5.0), math.acos(0.5)), ((-2.0, 0.6), math.asin(0.6))):

        def event(t, x, bounds=bounds):
            return torch.stack([x[0] - bounds[0], x[1] - bounds[1]])

        x0 = torch.tensor([1.0, 0.0], **DOUBLE)
        t, _ = lib.odeint(Turn(), x0, torch.tensor([0.0, 1.0], **DOUBLE), event_fn=event, **FINE)
        assert t.item() == pytest.approx(expected / 1.3, abs=1e-8)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_gradients_reach_parameters_of_the_event_function(adjoint):
    """The time at which cos(w t) falls to b is acos(b) / w."""
    (bound,) = leaf(0.5)
    x0, field = torch.tensor([1.0, 0.0], **DOUBLE), Turn()
    t, _ = snopt.odeint_event(
        field, x0, torch.tensor(0.0, **DOUBLE), event_fn=lambda t, x: x[0] - bound,
        adjoint=adjoint, **FINE,
    )  # fmt: skip
    t.backward()
    assert bound.grad.item() == pytest.approx(-1 / (1.3 * math.sqrt(0.75)), rel=1e-6)
    assert field.w.grad.item() == pytest.approx(-math.acos(0.5) / 1.3**2, rel=1e-6)


def test_without_gradients_the_search_is_the_solve():
    """And its numbers are those of the solve with gradients."""
    x0, t = torch.tensor([1.0, 0.0], **DOUBLE), torch.tensor([0.0, 1.0], **DOUBLE)
    results, counts = [], []
    for enabled in (False, True):
        stats = snopt.SolveStats()
        with torch.set_grad_enabled(enabled):
            results.append(
                snopt.odeint(Turn(), x0, t, event_fn=lambda t, x: x[1] - 0.9, stats=stats)
            )
        counts.append((stats.nfe_forward, stats.accepted, stats.rejected))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[0][1], results[1][1].detach(), rtol=1e-14, atol=1e-14)
    assert counts[0][0] < counts[1][0] < 2.2 * counts[0][0]
    assert counts[0][1:] == counts[1][1:]


@pytest.mark.parametrize("lib", BOTH)
def test_an_event_at_the_start_ends_the_solve_there(lib):
    x0, t = torch.tensor([0.0, 1.0], **DOUBLE), torch.tensor([0.25, 1.0], **DOUBLE)
    event_t, x = lib.odeint(Turn(), x0, t, event_fn=lambda t, x: x[0])
    assert event_t.item() == 0.25
    assert torch.equal(x, torch.stack([x0, x0]))


def test_callbacks_are_called_once_a_step():
    field, told, stats = Turn(), [], snopt.SolveStats()
    field.callback_accept_step = lambda t, x, dt: told.append(t.item())
    snopt.odeint(field, torch.tensor([1.0, 0.0], **DOUBLE), torch.tensor([0.0, 1.0], **DOUBLE),
                 event_fn=lambda t, x: x[0], stats=stats)  # fmt: skip
    assert len(told) == len(set(told)) == stats.accepted


def test_an_event_that_never_comes_is_an_error():
    for kwargs in ({}, {"method": "rk4", "options": {"step_size": 0.1}}):
        kwargs["options"] = {**kwargs.get("options", {}), "max_num_steps": 40}
        x0 = torch.tensor([1.0, 0.0], **DOUBLE)
        with pytest.raises(MaxStepsExceeded, match="before the event function changed its sign"):
            snopt.odeint(Turn(), x0, [0.0, 1.0], event_fn=lambda t, x: x[0] + 5, **kwargs)


def test_a_search_by_fixed_steps_is_bounded_without_being_asked():
    with (
        pytest.raises(MaxStepsExceeded, match="before the event function changed its sign"),
        torch.no_grad(),
    ):
        snopt.odeint(lambda t, x: -x, torch.ones(1), [0.0, 1.0], method="euler",
                     options={"step_size": 1e-3}, event_fn=lambda t, x: x + 1)  # fmt: skip


def test_calls_that_make_no_sense_are_refused():
    x0, event = torch.ones(1), lambda t, x: x - 0.5
    with pytest.raises(InvalidTimes, match="pass two"):
        snopt.odeint(lambda t, x: -x, x0, [0.0, 0.5, 1.0], event_fn=event)
    for method in ("rk4", "heun3", "implicit_adams"):
        with pytest.raises(InvalidOption, match="step_size"):
            snopt.odeint(lambda t, x: -x, x0, [0.0, 1.0], event_fn=event, method=method)
    with pytest.raises(InvalidOption, match="does not support events"):
        snopt.odeint(lambda t, x: -x, x0, [0.0, 1.0], event_fn=event, method="scipy_solver")


def test_an_event_that_the_path_does_not_cross_has_no_derivative():
    (x0,) = leaf(1.0)
    t, _ = snopt.odeint_event(
        lambda t, x: -x, x0, 0.0, event_fn=lambda t, x: torch.round(4 * x) - 2.5
    )
    assert t.item() == pytest.approx(-math.log(2.5 / 4), abs=1e-6)
    with pytest.raises(GradientError, match="fixed time"):
        t.backward()


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_fixed_steps_find_an_event_backward_in_time(method):
    def field(t, x):
        return torch.stack([x[1], -x[0]])

    def search(lib):
        start = torch.tensor([1.0, 0.0], dtype=torch.float64)
        return lib.odeint_event(
            field, start, torch.tensor(0.0, dtype=torch.float64), event_fn=lambda t, x: x[0] - 0.3,
            odeint_interface=lib.odeint, method=method, options={"step_size": 0.01},
            reverse_time=True, atol=1e-8,
        )  # fmt: skip

    t, path = search(snopt)
    theirs, their_path = search(torchdiffeq)
    assert t < 0
    torch.testing.assert_close(t, theirs, rtol=0, atol=1e-6)
    torch.testing.assert_close(path, their_path, rtol=0, atol=1e-6)


@pytest.mark.parametrize("grad", [False, True])
def test_numbers_as_times_have_the_precision_of_the_state(grad):
    x0 = torch.zeros(1, dtype=torch.float64, requires_grad=grad)
    kwargs = {"event_fn": lambda t, x: x[0] - 1.1, "rtol": 1e-12, "atol": 1e-12}

    def field(t, x):
        return torch.ones_like(x)

    for t, path in (
        snopt.odeint_event(field, x0, 0.1, **kwargs),
        snopt.odeint(field, x0, [0.1, 9.0], **kwargs),
    ):
        assert t.dtype == torch.float64
        assert abs(t.item() - 1.2) < 1e-10
        assert abs(path[-1].item() - 1.1) < 1e-10
    half = snopt.odeint_event(field, x0.detach().float(), 0, event_fn=kwargs["event_fn"])[0]
    assert half.dtype == torch.float32
