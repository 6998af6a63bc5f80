"""Sorting of operators into kinds of work."""

import pytest

from benchmarks.peers.profile import kind


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::addmm", "matrix products"),
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
