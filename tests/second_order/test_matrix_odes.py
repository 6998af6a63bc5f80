"""Theorem 1 against closed forms, autograd, and the observed order of the solver."""

import pytest
import torch
from torch import nn

from snopt.base.errors import UnknownName
from snopt.second_order.cost_to_go import CostToGo
from snopt.second_order.matrix_odes import (
    differential_programming,
)
from tests.problems_second_order import (
    COARSE,
    DTYPE,
    LABELS,
    POINTS,
    BilinearField,
    ConvField,
    LinearField,
    Rollout,
    TimedMLP,
    bilinear_solution,
    cross_entropy,
    linear_solution,
    lyapunov_integral,
    mixed_running,
    mlp_truth,
    observed_orders,
    random,
    relative,
    wavy,
)

NAMES = ("Q", "Q_x", "Q_u", "Q_xx", "Q_xu", "Q_uu")
RK4 = {"method": "rk4", "options": {"step_size": 1 / 64}}
FINE = {"method": "dopri8", "rtol": 1e-9, "atol": 1e-10}
SHORT = {"method": "rk4", "options": {"step_size": 1 / 8}}
TIGHT = {"method": "dopri5", "rtol": 1e-10, "atol": 1e-11}
METHODS = {
    "rk4": RK4,
    "dopri5": TIGHT,
    "dopri8": FINE,
    "implicit_adams": {
        "method": "implicit_adams",
        "rtol": 1e-11,
        "atol": 1e-12,
        "options": {"step_size": 1 / 128},
    },
}


def quadratic(P):
    return lambda x: 0.5 * x @ P @ x


def positive(m, seed):
    M = random(m, m, seed=seed)
    return M @ M.mT


def solved(field=None, x0=POINTS, terminal=cross_entropy, running=None, *, times=(0.0, 1.0), **how):
    """Theorem 1, by default for the small network and its cross-entropy."""
    return differential_programming(field or TimedMLP(), x0, times, terminal, running, **how)


def same(found, true, tolerance):
    """Compare every derivative."""
    true = true if isinstance(true, dict) else vars(true)
    for name in NAMES:
        assert relative(getattr(found, name), true[name]) < tolerance, name


def agree(found: CostToGo, z_gradient, z_curvature, tolerance):
    """Compare all blocks with a gradient and a matrix in z = (x0, u)."""
    m = len(found.Q_x)
    assert relative(torch.cat([found.Q_x, found.Q_u]), z_gradient) < tolerance
    blocks = {
        "Q_xx": z_curvature[:m, :m],
        "Q_xu": z_curvature[:m, m:],
        "Q_ux": z_curvature[m:, :m],
        "Q_uu": z_curvature[m:, m:],
    }
    for name, true in blocks.items():
        assert relative(getattr(found, name), true) < tolerance, name


# ------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("exact", [False, True])
def test_linear_field_has_the_closed_form_and_no_difference_between_the_two(exact):
    field, x0, P = LinearField(), random(3, seed=5), positive(3, 6)
    true = linear_solution(field, x0, P, 0.8)
    found = solved(field, x0, quadratic(P), times=(0.0, 0.8), exact=exact, **TIGHT)
    same(found, true, 1e-9)


@pytest.mark.parametrize("exact", [False, True])
def test_bilinear_field_has_the_closed_form(exact):
    field, x0, P = BilinearField(), random(3, seed=5), positive(3, 6)
    true = bilinear_solution(field, x0, P, 0.8, exact=exact)
    found = solved(field, x0, quadratic(P), times=(0.0, 0.8), exact=exact, **TIGHT)
    same(found, true, 1e-9)


def test_quadratic_running_cost_gives_the_lyapunov_integral():
    field, x0, R = LinearField(), random(3, seed=5), positive(3, 7)
    found = differential_programming(
        field, x0, (0.0, 0.8), lambda x: 0.0 * x.sum(), lambda t, x, params: 0.5 * x @ R @ x,
        **TIGHT,
    )  # fmt: skip
    assert relative(found.Q_xx, lyapunov_integral(field.A, R, 0.8)) < 1e-9


# ------------------------------------------------------------------------ against autograd

KIND = {False: "ggn", True: "hessian"}


@pytest.mark.parametrize("solver", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("exact", [False, True])
def test_equals_autograd_on_a_field_that_sees_the_time(exact, solver):
    found = solved(exact=exact, **solver)
    true = mlp_truth(cross_entropy)
    agree(found, true["gradient"], true[KIND[exact]], 1e-7)


def test_gauss_newton_matrix_is_not_the_hessian_of_a_nonlinear_field():
    true = mlp_truth(cross_entropy)
    assert relative(true["ggn"], true["hessian"]) > 0.1


@pytest.mark.parametrize("exact", [False, True])
def test_indefinite_terminal_cost(exact):
    found = solved(terminal=wavy, exact=exact, **FINE)
    true = mlp_truth(wavy)
    agree(found, true["gradient"], true[KIND[exact]], 1e-7)


def test_convolutional_field():
    x0 = random(1, 2, 2, 2, seed=8)
    rollout = Rollout(ConvField(), x0)

    def cost(x):
        return x.square().mean() + torch.sin(x).sum()

    found = solved(rollout.field, x0, cost, exact=True, **FINE)
    z = rollout.z
    v = random(len(z), seed=9)
    _, Hv = torch.autograd.functional.hvp(lambda z: rollout.cost(z, cost), z, v)
    H = torch.cat([torch.cat([found.Q_xx, found.Q_xu], 1), torch.cat([found.Q_ux, found.Q_uu], 1)])
    assert relative(H @ v, Hv) < 1e-7


@pytest.mark.parametrize("exact", [False, True])
def test_running_cost_of_time_state_and_parameters(exact):
    found = solved(running=mixed_running, exact=exact, **FINE)
    true = mlp_truth(cross_entropy, mixed_running)
    assert relative(found.Q, true["Q"]) < 1e-7
    agree(found, true["gradient"], true[KIND[exact]], 1e-7)


@pytest.mark.parametrize("running", [None, mixed_running], ids=["terminal", "running"])
@pytest.mark.parametrize("exact", [False, True])
def test_checkpoint_is_exact_for_the_steps_that_were_taken(exact, running):
    # The Gauss-Newton reference has the running cost at nodes of its own: fine steps there.
    coarse = exact or running is None
    found = solved(
        running=running, exact=exact, adjoint="checkpoint", **(COARSE if coarse else FINE)
    )
    true = mlp_truth(cross_entropy, running, coarse=coarse)
    assert relative(found.Q, true["Q"]) < 1e-7
    agree(found, true["gradient"], true[KIND[exact]], 1e-12 if coarse else 1e-7)


class Forgetful(nn.Module):
    """A field with a fast direction: run backward, errors along it blow up."""

    def __init__(self):
        super().__init__()
        self.inner = TimedMLP()

    def forward(self, t, x):
        return self.inner(t, x) - 12.0 * x * torch.tensor([1.0, 0.0])


def test_checkpoint_does_not_mind_a_field_that_cannot_be_run_backward():
    rollout = Rollout(Forgetful(), POINTS)
    true = rollout.hessian(cross_entropy)[4:, 4:]
    loose = {"rtol": 1e-4, "atol": 1e-4, "exact": True}
    steps = solved(rollout.field, adjoint="checkpoint", **loose)
    assert relative(steps.Q_uu, true) < 1e-2
    back = solved(rollout.field, **loose)
    assert relative(back.Q_uu, true) > 10 * relative(steps.Q_uu, true)


def test_running_cost_may_call_the_field():
    field, twin = TimedMLP(), TimedMLP()
    names = dict(twin.named_parameters())

    def energy(t, x, params):
        slope = torch.func.functional_call(twin, dict(zip(names, params, strict=True)), (t, x))
        return slope.square().sum()

    found = solved(
        field, running=lambda t, x, params: field(t, x).square().sum(), exact=True, **FINE
    )
    spelt = solved(field, running=energy, exact=True, **FINE)
    same(found, spelt, 1e-12)
    rollout = Rollout(field, POINTS)
    assert relative(
        torch.cat([spelt.Q_x, spelt.Q_u]), rollout.gradient(cross_entropy, energy)
    ) < 1e-7  # fmt: skip


@pytest.mark.parametrize("times", [(0.0, 1.0), (0.3, 0.8)])
def test_weight_decay_equals_its_shortcut(times):
    field, gamma = TimedMLP(), 0.07
    span = times[1] - times[0]

    def decay(t, x, params):
        return gamma / (2 * span) * sum(p.square().sum() for p in params)

    inside = solved(field, running=decay, times=times, **FINE)
    plain = solved(field, times=times, **FINE)
    after = plain.with_weight_decay(
        gamma, nn.utils.parameters_to_vector(field.parameters()).detach()
    )
    same(inside, after, 1e-9)
    assert relative(plain.Q_uu, after.Q_uu) > 1e-3


def test_solve_backward_in_time():
    found = solved(running=mixed_running, times=(1.0, 0.2), exact=True, **FINE)
    true = mlp_truth(cross_entropy, mixed_running, (1.0, 0.2))
    agree(found, true["gradient"], true["hessian"], 1e-7)


# ------------------------------------------------------------------------------ structure


def test_returned_matrices_are_symmetric_to_the_last_bit():
    found = solved(terminal=wavy, exact=True)
    assert torch.equal(found.Q_xx, found.Q_xx.mT)
    assert torch.equal(found.Q_uu, found.Q_uu.mT)


ORDERS = {"euler": 1, "midpoint": 2, "heun": 2, "bosh3": 3, "rk4": 4, "dopri5": 5}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("method", "order"), ORDERS.items())
def test_every_derivative_converges_with_the_order_of_the_solver(method, order, exact):
    field, x0 = TimedMLP(width=2), POINTS[:1]

    def terminal(x):
        return nn.functional.cross_entropy(x, LABELS[1:])

    def options(h):
        # An adaptive method may only take one size of step.
        held = {"first_step": h, "min_step": h, "max_step": h}
        return held if method in ("bosh3", "dopri5") else {"step_size": h}

    problem = (field, x0, terminal, mixed_running)
    true = solved(*problem, exact=exact, method="dopri8", rtol=1e-10, atol=1e-11)
    runs = [
        solved(*problem, exact=exact, method=method, options=options(1 / steps))
        for steps in ((24, 48) if order < 3 else (8, 16))
    ]
    for name in NAMES:
        errors = [relative(getattr(run, name), getattr(true, name)) for run in runs]
        assert observed_orders(errors)[0] > order - 0.3, (name, errors)


# ------------------------------------------------------------------------------- the edge


def test_frozen_parameters_are_not_variables():
    field = TimedMLP()
    whole = solved(field, **SHORT)
    n = sum(p.numel() for p in field.first.parameters())
    field.last.requires_grad_(False)
    part = solved(field, **SHORT)
    assert part.Q_uu.shape == (n, n)
    assert relative(part.Q_uu, whole.Q_uu[:n, :n]) < 1e-9


def test_field_without_parameters_has_curvature_in_its_state():
    found = solved(BilinearField().requires_grad_(False), random(3, seed=5), wavy, exact=True)
    assert found.Q_xx.shape == (3, 3)
    assert found.Q_uu.shape == (0, 0)


def test_tied_parameters_count_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(2, 2, dtype=DTYPE)
            self.two = nn.Linear(2, 2, dtype=DTYPE)
            self.two.weight = self.one.weight

        def forward(self, t, x):
            return self.two(torch.tanh(self.one(x)))

    rollout = Rollout(Tied(), POINTS)
    found = solved(rollout.field, exact=True, **FINE)
    assert found.Q_u.shape == (8,)
    agree(found, rollout.gradient(cross_entropy), rollout.hessian(cross_entropy), 1e-7)


def test_tuple_states_are_laid_end_to_end():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = TimedMLP()

        def forward(self, t, state):
            top, bottom = state
            slope = self.inner(t, torch.cat([top, bottom]))
            return slope[:1], slope[1:]

    whole = solved(exact=True, **SHORT)
    pair = solved(
        Pair(), (POINTS[:1], POINTS[1:]), lambda x: cross_entropy(torch.cat(x)), exact=True, **SHORT
    )
    same(pair, whole, 1e-9)


def test_single_precision():
    found = solved(TimedMLP().float(), POINTS.float(), rtol=1e-5, atol=1e-5)
    true = solved()
    assert found.Q_uu.dtype == torch.float32
    assert relative(found.Q_uu.double(), true.Q_uu) < 1e-4


def test_leaves_the_field_as_it_was():
    field = TimedMLP()
    before = [p.clone() for p in field.parameters()]
    found = solved(field)
    assert all(torch.equal(p, q) for p, q in zip(field.parameters(), before, strict=True))
    assert all(p.grad is None for p in field.parameters())
    assert not found.Q_uu.requires_grad


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="function"):
        solved(lambda t, x: x)
    with pytest.raises(TypeError, match=r"first\.weight is torch\.float64"):
        solved(x0=POINTS.float())
    with pytest.raises(ValueError, match=r"\(t0, t1\)"):
        solved(times=(0.0, 0.5, 1.0))
    with pytest.raises(ValueError, match=r"terminal_cost returned \(2,\)"):
        solved(terminal=lambda x: nn.functional.cross_entropy(x, LABELS, reduction="none"))
    with pytest.raises(UnknownName, match="adjoint 'direct'"):
        solved(adjoint="direct")
    with pytest.raises(TypeError, match="'tol'"):
        solved(tol=1e-3)
    found = solved()
    with pytest.raises(ValueError, match="there are 20 parameters"):
        found.with_weight_decay(0.1, POINTS)
