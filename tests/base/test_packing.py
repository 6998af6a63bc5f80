import gc
import weakref

import pytest
import torch

from snopt.base.errors import FieldOutputError, InvalidState
from snopt.base.packing import Packing


def nested():
    return torch.randn(2, 3), (torch.randn(4), [torch.randn(())])


def test_unpacking_undoes_packing_also_on_a_leading_axis():
    state = nested()
    packing = Packing.of(state)
    stacked = torch.stack([packing.pack(state)] * 5)
    x, (y, (z,)) = packing.unpack(stacked)
    assert torch.equal(x[3], state[0])
    assert torch.equal(y[0], state[1][0])
    assert torch.equal(z[4], state[1][1][0])


def test_unpacking_leaves_nothing_alive():
    """Parts of a state die with their last user, not when the collector runs."""
    state = nested()
    packing = Packing.of(state)
    packed = packing.pack(state)
    gc.disable()
    try:
        parts = packing.unpack(packed)
        alive = weakref.ref(parts[0])
        del parts
        assert alive() is None
    finally:
        gc.enable()


def test_a_lone_tensor_passes_through_untouched():
    x = torch.randn(2, 3)
    packing = Packing.of(x)
    assert packing.pack(x) is x
    assert packing.unpack(x) is x


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (3.0, "pass a tensor"),
        ((), "pass a tensor"),
        ((torch.zeros(1), "a"), "pass a tensor"),
        ((torch.zeros(1), torch.zeros(1, dtype=torch.float64)), "differ in dtype"),
        (torch.zeros(2, dtype=torch.int64), "int64"),
    ],
)
def test_states_that_cannot_be_integrated_are_refused(state, words):
    with pytest.raises(InvalidState, match=words):
        Packing.of(state)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (torch.zeros(3), r"\(3,\)"),
        (torch.zeros(2, dtype=torch.float64), "float64"),
        ((torch.zeros(2),), "tuple"),
        (None, "NoneType"),
    ],
)
def test_outputs_that_are_no_derivative_are_refused(out, words):
    x = torch.zeros(2)
    with pytest.raises(FieldOutputError, match=words):
        Packing.of(x).check_output(out, x)


def test_a_missing_part_of_a_tuple_is_refused():
    x = (torch.zeros(2), torch.zeros(1))
    with pytest.raises(FieldOutputError, match="1 tensors for a state of 2"):
        Packing.of(x).check_output((torch.zeros(2),), x)
