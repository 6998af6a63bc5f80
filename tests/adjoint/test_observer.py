"""Observers: told the truth, at the right places, without changing a bit."""

import math
from itertools import chain, pairwise, product

import pytest
import torch

import snopt
from snopt.adjoint.quadrature import gauss
from tests.problems import PairField, TanhField

ADJOINTS = ["checkpoint", "backsolve", "reversible", "direct"]


class Recorder:
    """Integrates ``x Q_x^T`` over time and remembers the nodes."""

    def __init__(self, quadrature):
        self.quadrature, self.nodes, self.moment = quadrature, [], 0.0

    def observe(self, t, weight, x, Q_x):
        assert not x.requires_grad
        assert not Q_x.requires_grad
        self.nodes.append((t.item(), weight, x, Q_x))
        self.moment = self.moment + weight * (x.T @ Q_x)


def setting(times=(0.0, 0.4, 0.45, 1.3)):
    torch.manual_seed(1)
    field = TanhField()
    x0 = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(len(times), 4, 3, dtype=torch.float64)
    weights[0] = 0.0
    return field, x0, list(times), weights


def run(observer, field, x0, times, weights, **kwargs):
    kwargs = {"rtol": 1e-3, "atol": 1e-3, **kwargs}
    x = snopt.odeint(field, x0, times, observer=observer, **kwargs)
    return torch.autograd.grad((x * weights).sum(), [x0, *field.parameters()])


def tells_the_truth(observer, case):
    """Whether an integral is within a percent of that on a fine grid."""
    fine = Recorder(snopt.UniformGrid(2000))
    run(fine, *case, adjoint="backsolve", rtol=1e-10, atol=1e-10)
    norm = torch.linalg.matrix_norm
    return norm(observer.moment - fine.moment) < 0.01 * norm(fine.moment)


@pytest.mark.parametrize("quadrature", [snopt.PerStep(2), snopt.UniformGrid(40)])
@pytest.mark.parametrize(
    ("adjoint", "method"),
    [
        ("reversible", None),  # which has one method
        *product(["checkpoint", "backsolve", "direct"], ["dopri5", "rk4", "adaptive_heun"]),
    ],
)
def test_observing_does_not_change_a_gradient_by_a_bit(adjoint, method, quadrature):
    case = setting()
    kwargs = {"adjoint": adjoint, "method": method}
    plain = run(None, *case, **kwargs)
    observer = Recorder(quadrature)
    observed = run(observer, *case, **kwargs)
    assert observer.nodes
    assert all(torch.equal(a, b) for a, b in zip(plain, observed, strict=True))


@pytest.mark.parametrize("times", [(0.0, 0.4, 0.45, 1.3), (0.0, -1.0)], ids=["many", "backward"])
@pytest.mark.parametrize("quadrature", [snopt.PerStep(2), snopt.UniformGrid(200)])
@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_integrals_along_the_path_are_those_of_a_fine_grid(adjoint, quadrature, times):
    case = setting(times)
    observer = Recorder(quadrature)
    run(observer, *case, adjoint=adjoint)
    assert sum(node[1] for node in observer.nodes) == pytest.approx(abs(times[-1] - times[0]))
    assert tells_the_truth(observer, case)


@pytest.mark.parametrize(
    ("method", "end"),
    [("implicit_adams", 1.0), ("adaptive_heun", 1.0), ("rk4", 1.0), ("midpoint", -1.0)],
)
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "direct"])
def test_every_method_tells_the_same_integral(adjoint, method, end):
    case = setting((0.0, end))
    options = {"step_size": 0.02} if method != "adaptive_heun" else None
    observer = Recorder(snopt.PerStep(2))
    run(observer, *case, adjoint=adjoint, method=method, options=options)
    assert tells_the_truth(observer, case)


@pytest.mark.parametrize("times", [[0.0, 0.3, 0.6, 2.0], [0.0, 0.6, 1.0, 2.0]])
def test_the_adjoint_between_outputs_inside_a_step_is_that_of_the_path(times):
    """dx/dt = -x / 2: Q_x(t) is the sum of exp(-(s - t) / 2) over the outputs s behind t."""
    stats, observer = snopt.SolveStats(), Recorder(snopt.PerStep(3))
    x = snopt.odeint(
        lambda t, x: -0.5 * x, torch.ones(1, 1, dtype=torch.float64, requires_grad=True), times,
        rtol=10.0, atol=10.0, options={"first_step": 1.0, "max_step": 1.0}, adjoint="checkpoint",
        adjoint_params=(), observer=observer, stats=stats,
    )  # fmt: skip
    x[1:].sum().backward()
    assert stats.accepted == 2
    assert len(observer.nodes) == 3 * len({1.0, *times[1:]})  # in each piece
    for t, _, _, Q_x in observer.nodes:
        expected = sum(math.exp(-0.5 * (s - t)) for s in times[1:] if s > t)
        assert Q_x.item() == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize("cuts", [[0.0, 0.375, 1.0], [1.0, 0.375, 0.0]])
def test_neighbouring_panels_of_a_uniform_grid_share_no_node(cuts):
    grid = snopt.UniformGrid(4)
    panels = [grid.panel(a, b, cuts[0], cuts[-1]) for a, b in pairwise(cuts)]
    assert sorted(chain(*panels)) == [(t, 0.25) for t in (0.125, 0.375, 0.625, 0.875)]


def test_one_euler_step_is_a_residual_layer():
    field, x0, times, weights = setting((0.0, 1.0))
    observer = Recorder(snopt.PerStep(2))
    run(observer, field, x0, times, weights, method="euler")
    ((t, weight, x, Q_x),) = observer.nodes
    assert (t, weight) == (0.0, 1.0)
    assert torch.equal(x, x0.detach())
    assert torch.equal(Q_x, weights[1])


def test_the_stages_of_a_fixed_step_reproduce_the_discrete_gradient():
    """sum_i w_i F_u(x_i)^T Q_i is the gradient of the discretised solution, exactly."""
    field, x0, times, weights = setting((0.0, 0.5, 1.0))
    observer = Recorder(snopt.PerStep(2))
    expected = run(observer, field, x0, times, weights, method="rk4")[1:]
    total = [torch.zeros_like(p) for p in field.parameters()]
    for t, weight, x, Q_x in observer.nodes:
        value = field(torch.tensor(t, dtype=torch.float64), x)
        found = torch.autograd.grad(value, list(field.parameters()), Q_x)
        total = [a + weight * b for a, b in zip(total, found, strict=True)]
    for a, b in zip(total, expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_step_costs_at_most_three_evaluations_to_observe():
    case = setting((0.0, 3.0))
    plain, told = snopt.SolveStats(), snopt.SolveStats()
    run(None, *case, stats=plain, rtol=1e-6, atol=1e-6)
    observer = Recorder(snopt.PerStep(2))
    run(observer, *case, stats=told, rtol=1e-6, atol=1e-6)
    own = told.nfe_backward - plain.nfe_backward
    per_step = (own + len(observer.nodes)) / plain.accepted
    assert plain.accepted >= 6
    assert per_step <= 3.0 + 2.0 / plain.accepted


def test_states_are_told_in_the_users_structure():
    field = PairField()
    x0 = (torch.randn(3, 2).double(), (torch.randn(3, 2).double(), torch.zeros(3).double()))
    shapes = []

    class Shapes:
        quadrature = snopt.PerStep(2)

        def observe(self, t, weight, x, Q_x):
            shapes.append((x[0].shape, Q_x[1][1].shape))

    z = snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-3, atol=1e-3, observer=Shapes())[1][1]
    z[-1].sum().backward()
    assert shapes
    assert set(shapes) == {(torch.Size([3, 2]), torch.Size([3]))}


def test_the_number_of_nodes_is_the_observers_choice():
    case = setting((0.0, 1.0))
    for nodes in (1, 3):
        observer, stats = Recorder(snopt.PerStep(nodes)), snopt.SolveStats()
        run(observer, *case, stats=stats)
        assert len(observer.nodes) == nodes * stats.accepted
    assert len(gauss(5)) == 5
