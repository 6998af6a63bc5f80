"""Where Kronecker factors are exact they equal the generalised Gauss-Newton matrix."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import snopt
from snopt.kronecker import KroneckerOptions
from snopt.second_order.terminal import ggn_factors, sampled_factor
from tests.kronecker.recorded import factors_after
from tests.problems import LayerField, Residual


def dense_ggn(model, weights, x, hessian):
    """Σ_b J_bᵀ H_b J_b over examples, by autograd."""
    params = dict(model.named_parameters())

    def outputs(*values):
        replaced = {**params, **dict(zip(weights, values, strict=True))}
        return torch.func.functional_call(model, replaced, (x,))

    jacobians = torch.autograd.functional.jacobian(outputs, tuple(params[n] for n in weights))
    J = torch.cat([j.flatten(2) for j in jacobians], dim=2)
    return torch.einsum("bcp,bcd,bdq->pq", J, hessian, J)


def joint_weight(model, layer, x, hessian):
    """The dense matrix with a layer's weight and bias packed as one matrix, row-major."""
    names = [f"{layer}.weight", f"{layer}.bias"]
    full = dense_ggn(model, names, x, hessian)
    out, inp = model.get_submodule(layer).weight.shape
    index = torch.tensor(
        [o * inp + i if i < inp else out * inp + o for o in range(out) for i in range(inp + 1)]
    )
    return full[index][:, index]


def mse_hessian(x, size):
    N = x.shape[0]
    return torch.eye(size, dtype=x.dtype).expand(N, -1, -1) * (2 / (N * size))


@pytest.mark.parametrize("layer", ["0", "1", "2"])
def test_deep_linear_networks_with_squared_error(layer):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5), nn.Linear(5, 2)).double()
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    options = KroneckerOptions(terminal="ggn", loss="squared_error")
    found = factors_after(model, lambda: functional.mse_loss(model(x), y), options)[layer]
    dense = joint_weight(model, layer, x, mse_hessian(x, 2))
    # Weights are packed [out, in]; flattened row by row the matrix is B ⊗ A.
    torch.testing.assert_close(torch.kron(found.B, found.A), dense)


def test_the_last_layer_with_cross_entropy_of_one_example():
    """With one example z is constant, so that the Kronecker product is exact for any loss."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 5)).double()
    x, y = torch.randn(1, 4, dtype=torch.float64), torch.tensor([2])
    options = KroneckerOptions(terminal="ggn", loss="cross_entropy")
    found = factors_after(model, lambda: functional.cross_entropy(model(x), y), options)
    p = model(x).softmax(1).detach()
    hessian = (torch.diag(p[0]) - p.T @ p)[None]
    for layer in ("0", "2"):
        dense = joint_weight(model, layer, x, hessian)
        torch.testing.assert_close(torch.kron(found[layer].B, found[layer].A), dense)


def test_one_euler_step_of_a_linear_field_with_squared_error():
    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, t, x):
            return self.layer(x)

    block = snopt.NeuralODE(Field(), 1.0, method="euler", options={"step_size": 1.0})
    model = nn.Sequential(block, nn.Linear(3, 2)).double()
    x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    options = KroneckerOptions(terminal="ggn", loss="squared_error")
    found = factors_after(model, lambda: functional.mse_loss(model(x), y), options)
    residual = nn.Sequential(Residual(block.field), model[1])
    dense = joint_weight(residual, "0.field.layer", x, mse_hessian(x, 2))
    layer = found["0.field.layer"]
    torch.testing.assert_close(torch.kron(layer.B, layer.A), dense)


def test_a_convolution_with_one_position_is_exact_in_every_form_of_sharing():
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 2)).double()
    x, y = torch.randn(5, 2, 2, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    dense = joint_conv(model, x)
    for sharing in ("expand", "trace"):
        options = KroneckerOptions(
            conv="kfc", sharing=sharing, terminal="ggn", loss="squared_error"
        )
        found = factors_after(model, lambda: functional.mse_loss(model(x), y), options)["0"]
        torch.testing.assert_close(torch.kron(found.B, found.A), dense)


def joint_conv(model, x):
    conv = model[0]
    flat = nn.Linear(8, 3).double()
    with torch.no_grad():
        flat.weight.copy_(conv.weight.flatten(1))
        flat.bias.copy_(conv.bias)
    same = nn.Sequential(flat, model[2])
    return joint_weight(same, "0", x.flatten(1), mse_hessian(x.flatten(1), 2))


def test_trace_restriction_keeps_the_trace_of_the_expanded_matrix():
    """tr(A ⊗ B) = N Σ ‖z‖² ‖g‖² exactly, which the product of separate averages misses."""
    layer = nn.Linear(3, 2).double()
    x, w = torch.randn(6, 4, 3, dtype=torch.float64), torch.randn(6, 4, 2, dtype=torch.float64)
    options = KroneckerOptions(sharing="trace")
    found = factors_after(layer, lambda: (layer(x) * w).sum((1, 2)).mean(), options)["model"]
    z = torch.cat([x, torch.ones(6, 4, 1)], -1)
    want = 6 * (z.pow(2).sum(-1) * (w / 6).pow(2).sum(-1)).sum()
    torch.testing.assert_close(found.A.trace() * found.B.trace(), want)


def test_ggn_factors_multiply_to_the_hessian_of_the_loss():
    outputs = torch.randn(3, 4, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1])
    cases = {
        "cross_entropy": lambda o: functional.cross_entropy(o, labels),
        "squared_error": lambda o: functional.mse_loss(o, torch.zeros_like(o)),
    }
    for loss, value in cases.items():
        hessian = torch.autograd.functional.hessian(value, outputs)
        y = torch.stack(ggn_factors(outputs, loss))
        for b in range(3):
            torch.testing.assert_close(3 * y[:, b].T @ y[:, b], hessian[b, :, b])


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_sampled_factors_average_to_the_exact_ones(loss):
    outputs = torch.randn(2, 3, dtype=torch.float64)
    exact = torch.stack(ggn_factors(outputs, loss))
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([sampled_factor(outputs, loss, generator) for _ in range(4000)])
    for b in range(2):
        want = exact[:, b].T @ exact[:, b]
        got = draws[:, b].T @ draws[:, b] / 4000
        assert (got - want).norm() < 0.06 * want.norm()


def test_sampling_leaves_the_global_random_state_alone():
    model = nn.Linear(3, 2)
    options = KroneckerOptions(terminal="sampled", loss="cross_entropy")
    torch.manual_seed(5)
    before = torch.get_rng_state()
    factors_after(model, lambda: model(torch.ones(4, 3)).sum(), options)
    assert torch.equal(before, torch.get_rng_state())


def test_terminal_passes_leave_gradients_alone():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    y = torch.tensor([0, 1, 0, 1, 1])

    def gradients(terminal):
        options = KroneckerOptions(terminal=terminal, loss="cross_entropy")
        recorder_run = []

        def run():
            loss = functional.cross_entropy(model(x), y)
            recorder_run.append(
                torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            )
            return loss

        assert factors_after(model, run, options)
        return recorder_run[0]

    for a, b in zip(gradients("gradient"), gradients("ggn"), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("terminal", ["ggn", "sampled"])
@pytest.mark.parametrize("first", [nn.Identity, lambda: nn.Linear(3, 3)])
def test_terminal_factors_reach_a_field_under_every_adjoint(terminal, first):
    field, stem = LayerField(), first()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 1])
    options = KroneckerOptions(terminal=terminal, loss="cross_entropy")

    def found(**solver):
        block = snopt.NeuralODE(field, 1.0, rtol=1e-8, atol=1e-8, **solver)
        model = nn.Sequential(stem, block).double()
        return factors_after(model, lambda: functional.cross_entropy(model(x), y), options)

    want = found()["1.field.layer"]
    # A black box of torchdiffeq is differentiated directly whatever was asked for.
    adams = {"method": "implicit_adams", "options": {"step_size": 0.02}}
    for solver in ({"adjoint": "direct"}, {"adjoint": "backsolve"}, adams):
        got = found(**solver)["1.field.layer"]
        torch.testing.assert_close(got.A, want.A, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(got.B, want.B, rtol=1e-4, atol=1e-6)


def test_ggn_of_a_model_with_several_outputs_says_what_to_do():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x), x

    model = Two()
    options = KroneckerOptions(terminal="ggn", loss="squared_error")
    with pytest.raises(TypeError, match=r"returned tuple. Use terminal='gradient'"):
        factors_after(model, lambda: model(torch.ones(1, 2))[0].sum(), options)
