"""What torchdiffeq's users rely on, compared with torchdiffeq itself."""

import pytest
import torch
import torchdiffeq
from torch import nn

import snopt
from snopt.base.errors import MaxStepsExceeded, SolveError

BOTH = [torchdiffeq, snopt]
#: Our names of torchdiffeq's fixed-step methods.
FIXED = {"euler": "euler", "midpoint": "midpoint", "heun2": "heun", "rk4": "rk4"}


class Field(nn.Module):
    """A small field with a parameter that it does not use."""

    def __init__(self, tuples=False):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.A = nn.Parameter(torch.randn(2, 2, generator=generator, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.tuples = tuples

    def forward(self, t, x):
        if self.tuples:
            return torch.tanh(x[0] @ self.A) * torch.cos(3 * t), x[0].sum(1) - x[1]
        return torch.tanh(x @ self.A) * torch.cos(3 * t)


X0 = torch.tensor([[1.0, -0.5], [0.3, 2.0]], dtype=torch.float64)
STATES = {"tensor": X0, "tuple": (X0, torch.zeros(2, dtype=torch.float64))}
T = torch.linspace(0.0, 1.0, 4, dtype=torch.float64)


def named(library, method):
    return FIXED.get(method, method) if library is snopt else method


def close(ours, theirs, tolerance=1e-12):
    if isinstance(theirs, tuple):
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, tolerance)
    else:
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def parts(state):
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("name", ["odeint", "odeint_adjoint"])
@pytest.mark.parametrize("method", ["dopri5", "rk4"])
def test_one_time_returns_the_initial_state(kind, name, method):
    field, y0 = Field(kind == "tuple"), STATES[kind]
    ours, theirs = (
        getattr(lib, name)(field, y0, torch.tensor([0.5], dtype=torch.float64), method=method)
        for lib in (snopt, torchdiffeq)
    )
    close(ours, theirs, 0)
    assert isinstance(ours, tuple) == (kind == "tuple")


def test_one_time_passes_gradients_on_and_clears_the_counts():
    x0, stats = X0.clone().requires_grad_(), snopt.SolveStats(nfe_forward=7)
    snopt.odeint(Field(), x0, [0.0], stats=stats).sum().backward()
    assert torch.equal(x0.grad, torch.ones_like(x0))
    assert stats.nfe_forward == 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_times_may_have_another_dtype(dtype):
    t = torch.tensor([0, 1, 3]).to(dtype)
    ours = snopt.odeint(Field(), X0, t)
    theirs = torchdiffeq.odeint(Field(), X0, t.to(torch.float64))
    assert ours.dtype == torch.float64
    close(ours, theirs, 1e-6)


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("interp", [None, "linear", "cubic"])
@pytest.mark.parametrize("flip", [False, True])
def test_outputs_inside_fixed_steps_are_interpolated_alike(method, interp, flip):
    """The values, and the gradients through them."""
    options = {"step_size": 0.4} | ({"interp": interp} if interp else {})
    t, results = T.flip(0) if flip else T, []
    for lib in BOTH:
        field, x0 = Field(), X0.clone().requires_grad_()
        x = lib.odeint(field, x0, t, method=named(lib, method), options=options)
        (x**3).sum().backward()
        results.append((x.detach(), x0.grad, field.A.grad))
    close(results[1], results[0])


def jumping(t, x):
    """Jumps at every eighth; at the jump itself neither side's value."""
    cell, edge = torch.floor(8 * t), torch.floor(8 * t) == 8 * t
    return torch.where(edge, 1e3, cell + 1) * torch.ones_like(x)


@pytest.mark.parametrize("method", ["euler", "heun2", "rk4"])
@pytest.mark.parametrize("flip", [False, True])
def test_perturb_evaluates_just_inside_the_steps(method, flip):
    t = torch.arange(0, 9, dtype=torch.float64) / 8
    t = t.flip(0) if flip else t
    for options in ({"perturb": True}, {"perturb": False}):
        ours, theirs = (
            lib.odeint(jumping, X0, t, method=named(lib, method), options=options)
            for lib in (snopt, torchdiffeq)
        )
        close(ours, theirs, 1e-9)
    assert ours.abs().max() > 30  # the edges were seen without perturb
    exact = 4.5 * (-1 if flip else 1)
    inside = snopt.odeint(jumping, X0, t, method="rk4", options={"perturb": True})
    assert (inside[-1] - X0 - exact).abs().max() < 1e-6


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct", "backsolve"])
def test_perturb_holds_in_the_backward_pass(adjoint):
    class Switched(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

        def forward(self, t, x):
            edge = (t == 0.0) | (t == 0.5) | (t == 1.0)
            return self.a * x * torch.where(edge, 1e3, torch.where(t < 0.5, 1.0, -2.0))

    field, x0 = Switched(), torch.ones(1, dtype=torch.float64)
    options = {"step_size": 0.05, "perturb": True}
    x = snopt.odeint(field, x0, [0.0, 1.0], method="rk4", options=options, adjoint=adjoint)
    x[-1].backward()
    assert x[-1].item() == pytest.approx(torch.tensor(-0.25).exp().item(), rel=1e-5)
    assert field.a.grad.item() == pytest.approx(-0.5 * x[-1].item(), rel=1e-4)


@pytest.mark.parametrize("where", [0.5, 1.0, 0.0])
def test_jump_t_may_lie_at_an_end(where):
    """The field is never evaluated at the jump itself."""

    def field(t, x):
        return torch.where(t == where, 1e3, torch.where(t < 0.5, 1.0, -3.0)) * torch.ones_like(x)

    jump = torch.tensor([where, 0.5] if where != 0.5 else [0.5], dtype=torch.float64)
    x = snopt.odeint(field, X0, [0.0, 1.0], options={"jump_t": jump})
    assert (x[-1] - X0 + 1.0).abs().max() < 1e-9


def grid_of(calls):
    def constructor(func, y0, t):
        calls.append(t.tolist())
        steps = torch.linspace(0.0, 1.0, 7, dtype=t.dtype)
        return t[0] + (t[-1] - t[0]) * steps**2

    return constructor


@pytest.mark.parametrize("method", ["rk4", "midpoint"])
@pytest.mark.parametrize("kind", ["grid_constructor", "step_size", "grid backward only"])
def test_grids_hold_for_the_backward_solve(method, kind):
    t, results = torch.tensor([0.0, 1.0], dtype=torch.float64), []
    for lib in BOTH:
        calls, times, field = [], [], Field()
        field.register_forward_pre_hook(lambda module, args, times=times: times.append(args[0]))
        options = (
            {"step_size": 0.07} if kind == "step_size" else {"grid_constructor": grid_of(calls)}
        )
        keywords = {"options": options}
        if kind == "grid backward only":
            keywords = {"options": {"step_size": 0.5}, "adjoint_options": options}
        x0 = X0.clone().requires_grad_()
        x = lib.odeint_adjoint(field, x0, t, method=named(lib, method), **keywords)
        times.clear()
        x[-1].pow(2).sum().backward()
        results.append((x0.grad, field.A.grad, calls, sorted({float(time) for time in times})))
    (dx, dA, calls, times), (dx2, dA2, calls2, times2) = results
    close(dx2, dx)  # the same backward steps
    if method == "rk4":
        close(dA2, dA, 5e-3)  # a quadrature, not part of the state
    assert calls2 == calls
    assert {round(time, 9) for time in times} <= {round(time, 9) for time in times2}


@pytest.mark.parametrize("method", ["dopri5", "adaptive_heun"])
@pytest.mark.parametrize("kind", STATES)
def test_a_users_norm_receives_the_state_as_the_user_knows_it(method, kind):
    for lib in BOTH:
        seen = set()

        def norm(state, seen=seen):
            seen.add(tuple(tuple(part.shape) for part in parts(state)))
            assert isinstance(state, tuple) == (kind == "tuple")
            return torch.stack([part.abs().max() for part in parts(state)]).max()

        lib.odeint(Field(kind == "tuple"), STATES[kind], T, method=method, rtol=1e-4, atol=1e-4,
                   options={"norm": norm})  # fmt: skip
        assert seen == {tuple(tuple(part.shape) for part in parts(STATES[kind]))}


@pytest.mark.parametrize("method", ["dopri5", "adaptive_heun"])
@pytest.mark.parametrize("kind", STATES)
def test_a_users_adjoint_norm_receives_time_state_and_adjoint(method, kind):
    """The parameters, which torchdiffeq puts behind them, are no part of the solve here."""
    seen = {torchdiffeq: set(), snopt: set()}
    for lib in BOTH:

        def norm(state, seen=seen[lib]):
            time, *rest = state
            assert time.shape == ()
            seen.add(tuple(tuple(part.shape) for part in rest))
            return torch.stack([part.abs().max() for part in rest]).max()

        field = Field(kind == "tuple")
        x = lib.odeint_adjoint(field, STATES[kind], T, method=method, rtol=1e-4, atol=1e-4,
                               adjoint_options={"norm": norm})  # fmt: skip
        parts(x)[0][-1].sum().backward()
    (theirs,), (ours,) = seen[torchdiffeq], seen[snopt]
    assert theirs[: len(ours)] == ours
    assert len(ours) == 2 * len(parts(STATES[kind]))


def test_the_forward_norm_measures_state_and_adjoint_backward():
    """Also if there are adjoint options, as long as they name no norm of their own."""
    counts = {}
    for name, norm in (("none", None), ("loose", lambda x: 1e-3 * x.abs().max())):
        stats = snopt.SolveStats()
        x = snopt.odeint_adjoint(
            Field(), X0, T, rtol=1e-6, atol=1e-6, stats=stats, method="dopri5",
            options={"norm": norm} if norm else None, adjoint_options={"max_num_steps": 500},
        )  # fmt: skip
        x[-1].sum().backward()
        counts[name] = stats.nfe_backward
    assert counts["loose"] < 0.7 * counts["none"]


def test_seminorm_is_what_always_holds():
    counts = []
    for adjoint_options in (None, {"norm": "seminorm"}):
        stats, field = snopt.SolveStats(), Field()
        x = snopt.odeint_adjoint(field, X0, T, adjoint_options=adjoint_options, stats=stats)
        x[-1].sum().backward()
        counts.append((stats.nfe_backward, field.A.grad.sum().item()))
    assert counts[0] == counts[1]


def test_options_of_one_method_are_not_guessed_for_another():
    for lib in BOTH:
        with pytest.raises(ValueError, match="adjoint_options"):
            lib.odeint_adjoint(Field(), X0, T, method="rk4", options={"step_size": 0.1},
                               adjoint_method="dopri5")  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("adjoint", ["direct", "backsolve", "checkpoint"])
def test_a_black_box_that_gives_up_raises(adjoint):
    """x' = x² has no solution at t = 2; SciPy stops at the pole without an exception."""
    x0 = torch.ones(1, dtype=torch.float64)
    for t in ([0.0, 2.0], [0.0, 0.5, 1.5, 2.0]):
        with pytest.raises(SolveError, match="failed at this time"):
            snopt.odeint(lambda t, x: x * x, x0, t, method="scipy_solver", adjoint=adjoint,
                         options={"solver": "RK45"})  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_a_solve_by_scipy_without_an_end_is_ended():
    """Near the pole LSODA's steps no longer change the time."""
    with pytest.raises(MaxStepsExceeded, match="after 1,000 evaluations") as caught:
        snopt.odeint(lambda t, x: x * x, torch.ones(1), [0.0, 2.0], method="scipy_solver",
                     options={"max_num_steps": 200})  # fmt: skip
    assert caught.value.t == pytest.approx(1.0, abs=0.1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("method", "options"),
    [("adaptive_heun", {}), ("fehlberg2", {}), ("scipy_solver", {"solver": "RK45"})],
)
def test_black_boxes_bound_their_evaluations(method, options, monkeypatch):
    calls = 0

    def stiff(t, x):
        nonlocal calls
        calls += 1
        return -1e8 * x

    x0 = torch.ones(1, dtype=torch.float64)
    with pytest.raises(MaxStepsExceeded, match="max_num_steps"):
        snopt.odeint(stiff, x0, [0.0, 1.0], method=method, options={**options, "max_num_steps": 50})
    assert calls <= 250
    monkeypatch.setattr("snopt.ode.settings.BLACK_BOX_STEPS", 40)
    calls = 0
    with pytest.raises(MaxStepsExceeded, match="max_num_steps"):
        snopt.odeint(stiff, x0, [0.0, 1.0], method=method, options=options)
    assert calls <= 200


def test_scipy_solves_a_stiff_problem_with_its_default_method():
    calls = 0

    def stiff(t, x):
        nonlocal calls
        calls += 1
        return -1e8 * (x - 2.0)

    x0 = torch.ones(1, dtype=torch.float64)
    x = snopt.odeint(stiff, x0, [0.0, 1.0], method="scipy_solver")
    assert x[-1].item() == pytest.approx(2.0)
    assert calls < 1000


@pytest.mark.parametrize("lib", BOTH)
def test_tolerances_as_a_tensor_are_those_of_the_parts_of_a_tuple(lib):
    times = []
    for rtol in (torch.tensor([1e-2, 1e-7]), (1e-2, 1e-7), 1e-7):
        field, calls = Field(tuples=True), []
        field.register_forward_pre_hook(lambda _, args, calls=calls: calls.append(args[0].item()))
        lib.odeint(field, STATES["tuple"], T, rtol=rtol, atol=1e-9)
        times.append(calls)
    assert times[0] == times[1] != times[2]
