"""Flows: densities, samples, divergences, regularisers, gradients."""

import copy
import math

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import UnknownName
from snopt.base.types import leaves
from snopt.kronecker import recorded_calls
from snopt.models import CNF
from tests.problems import descend

TIGHT = {"rtol": 1e-9, "atol": 1e-9}
LOOSE = {"rtol": 1e-3, "atol": 1e-3}
ROTATION = torch.tensor([[0.3, -1.0], [1.0, 0.5]], dtype=torch.float64)


class Affine(nn.Module):
    """dx/dt = A x + b t, without tangents of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.A = nn.Parameter(ROTATION.clone())
        self.b = nn.Parameter(torch.tensor([0.5, -0.2], dtype=torch.float64))

    def forward(self, t, x):
        return x @ self.A.T + self.b * t


def bent_flow(dim: int = 2, **options) -> CNF:
    """A flow that bends space, in double precision."""
    flow = CNF(dim, **{"hidden": (12,), **TIGHT, **options}).double()
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            if name.endswith("linear.weight"):
                parameter.mul_(2.0)
    return flow


def points(count: int = 6, dim: int = 2) -> torch.Tensor:
    return torch.randn(count, dim, dtype=torch.float64)


# ------------------------------------------------------------------ likelihoods


def test_the_likelihood_of_an_affine_flow_is_exact():
    flow, x = CNF(2, fields=[Affine()], horizon=0.8, **TIGHT), points()
    z, log_det = flow(x)
    big = torch.zeros(4, 4, dtype=torch.float64)  # d/dt (x, t, 1) with b t as linear terms
    big[:2, :2], big[:2, 2], big[2, 3] = ROTATION, flow.blocks[0].field.field.b.detach(), 1.0
    moved = torch.linalg.matrix_exp(0.8 * big)
    assert torch.allclose(z, x @ moved[:2, :2].T + moved[:2, 3], atol=1e-7)
    assert torch.allclose(log_det, torch.full((6,), 0.8 * 0.8, dtype=torch.float64), atol=1e-8)
    covariance = moved[:2, :2].T @ moved[:2, :2]
    mean = -torch.linalg.solve(moved[:2, :2], moved[:2, 3])
    normal = torch.distributions.MultivariateNormal(mean, precision_matrix=covariance)
    assert torch.allclose(flow.log_prob(x), normal.log_prob(x), atol=1e-7)


def test_data_flow_to_a_normal_of_any_variance():
    flow, x = bent_flow(base_variance=0.1), points()
    z, log_det = flow(x)
    base = torch.distributions.MultivariateNormal(torch.zeros(2).double(), 0.1 * torch.eye(2))
    assert torch.allclose(flow.log_prob(x), base.log_prob(z) + log_det)
    assert torch.allclose(flow.loss(x), -(base.log_prob(z) + log_det).mean())
    costly = bent_flow(base_variance=0.1, kinetic=1e-30)
    costly.load_state_dict(flow.state_dict())
    assert torch.allclose(costly.loss(x), flow.loss(x))
    drawn = flow(flow.sample(4000, torch.Generator().manual_seed(0)))[0]
    assert torch.allclose(drawn.var(dim=0), torch.full((2,), 0.1).double(), rtol=0.1)
    with pytest.raises(ValueError, match=r"base_variance = 0.0 must be a positive number"):
        CNF(2, base_variance=0.0)


@pytest.mark.parametrize("stacks", [1, 3])
def test_the_reverse_of_forward_returns_the_input(stacks):
    flow, x = bent_flow(stacks=stacks), points()
    z, log_det = flow(x)
    back, log_det_back = flow.inverse(z)
    assert (z - x).abs().max() > 0.1
    assert torch.allclose(back, x, atol=1e-6)
    assert torch.allclose(log_det_back, -log_det, atol=1e-6)


@pytest.mark.parametrize("dim", [2, 5])
def test_the_log_determinant_is_that_of_the_map(dim):
    flow, x = bent_flow(dim, stacks=2, activation="softplus"), points(1, dim)
    jacobian = torch.autograd.functional.jacobian(lambda x: flow(x[None])[0][0], x[0])
    assert torch.allclose(flow(x)[1], jacobian.det().abs().log(), atol=1e-6)


def circles(count: int) -> torch.Tensor:
    angle = torch.rand(count) * 2.0 * math.pi
    radius = 1.0 + (torch.rand(count) < 0.5) + 0.1 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


def moons(count: int) -> torch.Tensor:
    angle, upper = torch.rand(count) * math.pi, torch.rand(count) < 0.5
    x = torch.where(upper, angle.cos(), 1.0 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], dim=1) + 0.1 * torch.randn(count, 2)


@pytest.mark.parametrize(
    ("data", "make"),
    [
        (circles, lambda: CNF(2, hypernetwork=True, horizon=10.0, **LOOSE)),
        (moons, lambda: CNF(2, (24, 24), **LOOSE)),
    ],
    ids=["circle", "two moons"],
)
def test_snopt_learns_a_density_that_integrates_to_one_and_that_its_samples_follow(data, make):
    flow = make()
    losses = descend(snopt.SNOpt(flow), lambda: flow.loss(data(128)), 40)
    assert sum(losses[-5:]) < sum(losses[:5]) - 0.25
    flow.eval()
    side, cells, half = 96, 8, 6.0
    ticks = (torch.arange(side) + 0.5) * (2.0 * half / side) - half
    grid = torch.cartesian_prod(ticks, ticks)
    with torch.no_grad():
        density = flow.log_prob(grid).exp().reshape(side, side) * (2.0 * half / side) ** 2
    assert abs(density.sum().item() - 1.0) < 0.01
    # ... and its samples follow it: moments, and counts in the cells of a coarse histogram
    count = 8000
    x = flow.sample(count, torch.Generator().manual_seed(0))
    mass = density.flatten()
    mean = (mass[:, None] * grid).sum(0)
    second = (mass[:, None] * grid.square()).sum(0)
    assert torch.allclose(x.mean(0), mean, atol=0.1)
    assert torch.allclose(x.square().mean(0), second, rtol=0.06)
    block = side // cells
    share = density.reshape(cells, block, cells, block).sum((1, 3))
    inside = x[(x.abs() < half).all(1)]
    index = ((inside + half) / (2.0 * half) * cells).long()
    seen = torch.bincount(index[:, 0] * cells + index[:, 1], minlength=cells**2)
    error = seen.reshape(cells, cells) / count - share
    assert (error.abs() < 5.0 * (share / count).sqrt() + 2e-3).all()
    assert share.max() < 0.5  # the histogram is not one cell


# ------------------------------------------------------------------ divergences and noise


@pytest.mark.parametrize("kind", ["rademacher", "gaussian"])
def test_estimated_likelihoods_agree_with_exact_ones_in_expectation(kind):
    flow = bent_flow(3, divergence=kind, rtol=1e-5, atol=1e-5)
    x, draws = points(1, 3), 4000
    with torch.no_grad():
        estimates = flow.log_prob(x.expand(draws, 3))
        exact = flow.log_prob(x, divergence="exact")
    error = estimates.std() / draws**0.5
    assert 1e-3 < error < 0.05
    assert abs(estimates.mean() - exact) < 4.0 * error


@pytest.mark.parametrize("own", [True, False], ids=["tangents", "autograd"])
def test_noise_belongs_to_its_solve(own):
    """Two calls wait for their backward passes, which run their steps again."""
    again = {"adjoint": snopt.Checkpoint(keep=0)}
    flow = bent_flow(divergence="gaussian", stacks=2, **again)
    if not own:
        flow = CNF(2, fields=[Affine()], divergence="gaussian", **TIGHT, **again)
    x, params = points(), list(flow.parameters())
    torch.manual_seed(3)
    one, two = flow.log_prob(x).sum(), flow.log_prob(x).square().sum()
    found = torch.autograd.grad(one + two, params)
    direct = copy.deepcopy(flow)
    for block in direct.blocks:
        block.adjoint = snopt.Direct()
    torch.manual_seed(3)
    loss = direct.log_prob(x).sum() + direct.log_prob(x).square().sum()
    expected = torch.autograd.grad(loss, list(direct.parameters()), allow_unused=True)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, torch.zeros_like(a) if b is None else b, atol=1e-6)
    assert not torch.isclose(one, flow.log_prob(x).sum())  # noise is drawn anew


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "direct"])
@pytest.mark.parametrize("divergence", ["exact", "rademacher"])
def test_adjoints_agree(adjoint, divergence):
    reference = bent_flow(divergence=divergence, adjoint="direct")
    flow = bent_flow(divergence=divergence, adjoint=adjoint)
    flow.load_state_dict(reference.state_dict())
    x, gradients = points(), []
    for each in (reference, flow):
        torch.manual_seed(4)
        gradients.append(torch.autograd.grad(each.loss(x), list(each.parameters())))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("divergence", ["exact", "rademacher"])
def test_the_divergence_adds_no_call_of_a_layer(divergence):
    flow, x = bent_flow(divergence=divergence), points()
    field = flow.blocks[0].field
    layers = {name: m for name, m in field.named_modules() if isinstance(m, nn.Linear)}
    state = (x, (x.new_zeros(6),), *([torch.ones_like(x)] if divergence != "exact" else []))
    with recorded_calls(layers) as calls:
        field(torch.tensor(0.1, dtype=torch.float64), state)
    assert sorted(call.name for call in calls) == sorted(layers)


@pytest.mark.parametrize("divergence", ["exact", "rademacher", "gaussian"])
@pytest.mark.parametrize("stacks", [1, 2])
def test_snopt_trains_it(divergence, stacks):
    flow = CNF(3, (16,), "softplus", stacks, divergence=divergence, kinetic=0.01, **LOOSE)
    x = 0.5 * torch.randn(64, 3) + 1.0
    optimizer = snopt.SNOpt(flow)
    losses = descend(optimizer, lambda: flow.loss(x), 15)
    assert losses[-1] < losses[0] - 0.1
    covered = {f"blocks.{i}.field.field.layers.{j}.linear" for i in range(stacks) for j in (0, 1)}
    assert covered <= optimizer.factors.keys()


# ------------------------------------------------------------------ regularisers


def test_costs_of_an_affine_flow_have_their_closed_form():
    flow, x = CNF(2, fields=[Affine()], horizon=0.8, **TIGHT), points()
    field = flow.blocks[0].field.field
    _, _, costs = flow(x, costs=True)
    times = torch.linspace(0.0, 0.8, 2001, dtype=torch.float64)
    path = snopt.odeint(field, x, times, **TIGHT)
    speed = torch.stack([field(t, state) for t, state in zip(times, path, strict=True)])
    kinetic = torch.trapezoid(speed.square().sum(2), times, dim=0)
    assert torch.allclose(costs.kinetic, kinetic, rtol=1e-5)
    expected = torch.full((6,), 0.8, dtype=torch.float64) * ROTATION.square().sum()
    assert torch.allclose(costs.jacobian, expected, atol=1e-7)


def test_costs_add_up_over_a_stack_and_are_weighted_in_the_loss():
    flow, x = bent_flow(stacks=2, kinetic=0.3, jacobian=0.7), points()
    plain = bent_flow(stacks=2)
    plain.load_state_dict(flow.state_dict())
    _, _, costs = flow(x, costs=True)
    assert costs.kinetic.shape == costs.jacobian.shape == (6,)
    expected = plain.loss(x) + (0.3 * costs.kinetic + 0.7 * costs.jacobian).mean()
    assert torch.allclose(flow.loss(x), expected, atol=1e-7)


def test_measuring_costs_takes_the_same_steps():
    flow = bent_flow(rtol=1e-4, atol=1e-4).eval()
    x = 10.0 * points()
    z, log_det = flow(x)
    measured_z, measured_log_det, _ = flow(x, costs=True)
    assert torch.equal(z, measured_z)
    assert torch.equal(log_det, measured_log_det)
    everything = {"norm": lambda state: torch.cat([p.flatten() for p in leaves(state)]).norm()}
    other = bent_flow(rtol=1e-4, atol=1e-4, options=everything).eval()
    other.load_state_dict(flow.state_dict())
    assert not torch.equal(other(x, costs=True)[0], z)  # a norm of one's own is respected


def test_estimated_jacobian_costs_agree_in_expectation():
    flow = bent_flow(3, divergence="rademacher", rtol=1e-5, atol=1e-5)
    x = points(1, 3)
    with torch.no_grad():
        exact = flow(x, divergence="exact", costs=True)[2].jacobian
        found = flow(x.expand(4000, 3), costs=True)[2].jacobian
    assert abs(found.mean() - exact) < 4.0 * found.std() / 4000**0.5


# ------------------------------------------------------------------ living with others


def test_samples_can_be_drawn_again_and_carry_no_gradient():
    flow = bent_flow(stacks=2).eval()
    first, second = (flow.sample(4, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.dtype == torch.float64
    assert not first.requires_grad
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.allclose(first, flow.inverse(z)[0], atol=1e-7)


def test_a_flow_can_be_copied_and_restored_after_training():
    flow, x = bent_flow(divergence="rademacher", kinetic=0.1), points()
    flow.loss(x).backward()
    twin = copy.deepcopy(flow)
    fresh = bent_flow(divergence="rademacher", kinetic=0.1)
    fresh.load_state_dict(flow.state_dict())
    expected = flow.log_prob(x, divergence="exact")
    for other in (twin, fresh):
        assert torch.equal(other.log_prob(x, divergence="exact"), expected)


@pytest.mark.slow
@pytest.mark.parametrize("hypernetwork", [False, True])
def test_compiled_steps_give_the_same_loss_and_gradients(hypernetwork):
    options = {"hypernetwork": hypernetwork, "divergence": "rademacher"}
    options |= {"hidden": (8,), "rtol": 1e-6, "atol": 1e-6}
    eager, compiled = CNF(2, **options), CNF(2, **options, compile=True)
    compiled.load_state_dict(eager.state_dict())
    x, found = torch.randn(5, 2), []
    for flow in (eager, compiled):
        torch.manual_seed(6)
        loss = flow.loss(x)
        found.append([loss, *torch.autograd.grad(loss, list(flow.parameters()))])
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*found, strict=True))


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'rademacher'"):
        CNF(2, divergence="rademaker")
    with pytest.raises(UnknownName, match="Valid names: exact"):
        bent_flow().log_prob(points(), divergence="none")
    with pytest.raises(ValueError, match="stacks = 0"):
        CNF(2, stacks=0)
    with pytest.raises(ValueError, match="one hidden layer with tanh"):
        CNF(2, (64, 64), hypernetwork=True)
    with pytest.raises(ValueError, match=r"expected \(batch, 2\)"):
        bent_flow().log_prob(points(3, 4))
