"""Passes over compiled graphs: products without a bias."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from snopt.adjoint.compiled_passes import compiler_pass, split_bias


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_product_with_a_bias_becomes_a_product_and_a_sum(dtype, scaled):
    more = {"beta": 0.5} if scaled else {}
    given = [torch.randn(*size).to(dtype) for size in ((3,), (5, 4), (4, 3))]

    def function(bias, x, weight):
        return torch.tanh(torch.addmm(bias, x, weight, **more))

    module = make_fx(function, tracing_mode="fake")(*given)
    compiler_pass(split_bias)(module.graph)
    module.graph.lint()
    module.recompile()
    # Lower precision would round the product once more.
    assert ("addmm" in module.code) == (scaled or dtype == torch.bfloat16)
    torch.testing.assert_close(module(*given), function(*given))
