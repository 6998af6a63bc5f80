"""Sorting of operators into kinds of work."""

import pytest
import torch

from benchmarks.engine.profile import PYTHON, by_kind, kind


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::addmm", "matrix products"),
        ("aten::mkldnn_convolution", "matrix products"),
        ("CompiledFunctionBackward", "compiled code"),
        ("aten::cat", "copies and allocation"),
        ("aten::t", "views"),
        ("aten::tanh", "elementwise"),
        ("aten::_local_scalar_dense", "reading a number"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "autograd's bookkeeping"),
        ("AddmmBackward0", "autograd's bookkeeping"),
        ("_CheckpointBackward", "Python around the operators"),
    ],
)
def test_operator_is_of_its_kind(operator, expected):
    assert kind(operator) == expected


def test_kinds_are_shares_of_the_whole_call():
    x = torch.randn(200, 200)
    found = by_kind(lambda: [x @ x for _ in range(20)])
    assert found["calls"] >= 20
    assert sum(found["kinds"].values()) == pytest.approx(1.0)
    assert {"matrix products", PYTHON} <= set(found["kinds"])
    assert found["top"][0][0] == "aten::mm"
