"""Matrix-free products against autograd, Theorem 1, and as SciPy operators."""

import pytest
import torch
from scipy.sparse.linalg import eigsh

import snopt
from snopt.base.errors import UnknownName
from snopt.second_order.derivatives import hessian, pushforward
from snopt.second_order.linear_operator import curvature_operator
from snopt.second_order.products import ggn_vector_product, hessian_vector_product
from tests.problems_second_order import (
    COARSE,
    DTYPE,
    POINTS,
    ConvField,
    Rollout,
    TimedMLP,
    cross_entropy,
    mixed_running,
    mlp_truth,
    random,
    relative,
)

PRODUCTS = {"ggn": ggn_vector_product, "hessian": hessian_vector_product}
FINE = {"method": "dopri8", "rtol": 1e-9, "atol": 1e-10}
COLUMNS = {"x0": slice(0, 4), "params": slice(4, 24), "both": slice(0, 24)}


CASES = [("x0", None), ("params", None), ("both", mixed_running)]


@pytest.mark.parametrize(("wrt", "running"), CASES)
@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_equals_autograd(kind, wrt, running, adjoint):
    chosen = COLUMNS[wrt]
    true = mlp_truth(cross_entropy, running)[kind][chosen, chosen]
    v = random(3, len(true), seed=3)
    found = PRODUCTS[kind](
        TimedMLP(), POINTS, (0.0, 1.0), cross_entropy, v, running, wrt=wrt, adjoint=adjoint, **FINE
    )
    assert relative(found, v @ true) < 1e-7


@pytest.mark.parametrize(
    ("kind", "running"), [("ggn", None), ("hessian", None), ("hessian", mixed_running)]
)
def test_checkpoint_is_exact_for_the_steps_that_were_taken(kind, running):
    true = mlp_truth(cross_entropy, running, coarse=True)[kind]
    v = random(3, 24, seed=3)
    found = PRODUCTS[kind](
        TimedMLP(), POINTS, (0.0, 1.0), cross_entropy, v, running, wrt="both", **COARSE
    )
    assert relative(found, v @ true) < 1e-12


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_one_vector_or_many(adjoint):
    v = random(4, 20, seed=4)
    args = (TimedMLP(), POINTS, (0.0, 1.0), cross_entropy)
    many = hessian_vector_product(*args, v, adjoint=adjoint, **COARSE)
    one = hessian_vector_product(*args, v[2], adjoint=adjoint, **COARSE)
    assert one.shape == (20,)
    assert relative(many[2], one) < 1e-12


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "dopri8"])
def test_adaptive_steps_are_those_of_the_solve(method):
    field, v = TimedMLP(), random(20, seed=5)
    solver = {"method": method, "rtol": 1e-3, "atol": 1e-3}
    found = hessian_vector_product(field, POINTS, (0.0, 1.0), cross_entropy, v, **solver)
    x1 = snopt.odeint(field, POINTS, [0.0, 1.0], adjoint="direct", **solver)[-1]
    params = tuple(field.parameters())
    gradient = torch.autograd.grad(cross_entropy(x1), params, create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradient])
    true = torch.autograd.grad(flat @ v, params)
    assert relative(found, torch.cat([g.reshape(-1) for g in true])) < 1e-10


def test_backsolve_takes_black_box_methods():
    v = random(20, seed=7)
    found = hessian_vector_product(
        TimedMLP(), POINTS, (0.0, 1.0), cross_entropy, v, adjoint="backsolve",
        method="implicit_adams", options={"step_size": 1 / 128},
    )  # fmt: skip
    assert relative(found, mlp_truth(cross_entropy)["hessian"][4:, 4:] @ v) < 1e-7


def test_convolutional_field():
    x0 = random(2, 2, 3, 3, seed=8)
    rollout = Rollout(ConvField(), x0, solver={"method": "rk4", "options": {"step_size": 0.25}})

    def cost(x):
        return torch.sin(x).sum()

    z = rollout.z
    v = random(len(z), seed=9)
    _, true = torch.autograd.functional.hvp(lambda z: rollout.cost(z, cost), z, v)
    found = hessian_vector_product(
        rollout.field, x0, (0.0, 1.0), cost, v, wrt="both", **rollout.solver
    )
    assert relative(found, true) < 1e-12


class NoForward(torch.autograd.Function):
    """A cube without a rule for forward mode."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


def test_operations_without_forward_mode_are_pulled_back_twice():
    x, v = random(3, seed=1), random(2, 3, seed=2)
    value, along = pushforward(NoForward.apply, (x,), (v,))
    assert torch.equal(value, x**3)
    assert relative(along, 3 * x * x * v) < 1e-12
    H = hessian(lambda x: NoForward.apply(x).sum(), x)
    assert relative(H, torch.diag(6 * x)) < 1e-12


@pytest.mark.parametrize("kind", PRODUCTS)
def test_scipy_finds_the_eigenvalues(kind):
    operator = curvature_operator(
        TimedMLP(), POINTS, (0.0, 1.0), cross_entropy, kind=kind, method="rk4",
        options={"step_size": 1 / 2},
    )  # fmt: skip
    eye = torch.eye(20, dtype=DTYPE).numpy()
    matrix = torch.as_tensor(operator @ eye)
    assert relative(matrix, matrix.mT) < 1e-12
    values = torch.linalg.eigvalsh(matrix)
    largest = eigsh(operator, k=2, which="LA", return_eigenvectors=False)
    assert relative(torch.as_tensor(largest).sort().values, values[-2:]) < 1e-9
    assert operator.dtype == "float64"


def test_wrong_arguments_are_named():
    args = (TimedMLP(), POINTS, (0.0, 1.0), cross_entropy)
    v = torch.ones(20, dtype=DTYPE)
    with pytest.raises(ValueError, match=r"v has shape \(3,\)"):
        hessian_vector_product(*args, v[:3])
    with pytest.raises(UnknownName, match="wrt 'param'"):
        hessian_vector_product(*args, v, wrt="param")
    with pytest.raises(UnknownName, match="adjoint 'backsolv'"):
        ggn_vector_product(*args, v, adjoint="backsolv")
    with pytest.raises(ValueError, match="implicit_adams"):
        ggn_vector_product(*args, v, method="implicit_adams")
    with pytest.raises(UnknownName, match="kind 'fisher'"):
        curvature_operator(*args, kind="fisher")
