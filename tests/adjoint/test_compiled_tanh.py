"""The compiled tanh: right to a few roundings, and where it belongs."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import snopt
from snopt.adjoint.compiled_passes import compiler_pass
from snopt.adjoint.compiled_tanh import rational_tanh, replace_tanh
from tests.problems import TanhField


def test_it_is_right_to_a_few_roundings_from_the_smallest_numbers_to_the_largest():
    sizes = torch.cat([torch.logspace(-30, 30, 200_001), torch.linspace(0, 10, 500_001)])
    exact = torch.tanh(sizes.double())
    for sign in (-1.0, 1.0):
        found = rational_tanh(sign * sizes)
        assert ((found.double() - sign * exact).abs() <= 4e-7 * exact).all()
        assert found.abs().max() == 1.0


def test_infinity_is_one_and_nan_stays_nan():
    found = rational_tanh(torch.tensor([float("inf"), -float("inf"), float("nan")]))
    assert found[:2].tolist() == [1.0, -1.0]
    assert found[2].isnan()


def after(found, x):
    """A traced function of ``x`` after a pass over its graph."""
    module = make_fx(lambda x: 2.0 * torch.tanh(x + 1.0), tracing_mode="fake")(x)
    found(module.graph)
    module.graph.lint()
    module.recompile()
    return module


@pytest.mark.parametrize(("dtype", "replaced"), [(torch.float32, True), (torch.float64, False)])
def test_tanh_is_replaced_in_a_graph_for_float32_alone(dtype, replaced):
    x = torch.randn(5, dtype=dtype)
    module = after(compiler_pass(replace_tanh), x)
    assert ("tanh" not in module.code) == replaced
    torch.testing.assert_close(module(x), 2.0 * torch.tanh(x + 1.0))


def test_every_function_that_is_compiled_gets_the_pass(monkeypatch):
    passes = []

    def note(function, options):
        passes.append(options["post_grad_custom_pre_pass"])
        return function

    monkeypatch.setattr("snopt.adjoint.compiled.torch.compile", note)
    snopt.NeuralODE(TanhField(), compile=True)(torch.randn(2, 3, dtype=torch.float64))
    assert passes
    for found in passes:
        assert "tanh" not in after(found, torch.randn(5)).code
