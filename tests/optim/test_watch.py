"""A model that is not what the optimizer was made for, and groups that join later."""

import pytest
import torch
from torch import nn

import snopt
from tests.optim.problems import cloned, iterate, trained_by


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def replaced(model):
    model[2] = nn.Linear(4, 2)


def without_bias(model):
    model[2].bias = None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced, "2.weight, 2.bias gone; 2.weight, 2.bias new"),
        (without_bias, "2.bias gone"),
        (nn.Module.double, "cast or moved"),
    ],
)
def test_a_model_changed_after_the_first_step_is_refused(change, message):
    model = net()
    optimizer = snopt.SNOpt(model)
    iterate(model, optimizer)
    change(model)
    with pytest.raises(RuntimeError, match=rf"{message}.*Create a new SNOpt"):
        iterate(model, optimizer)
    iterate(model, snopt.SNOpt(model))


def test_a_model_may_be_cast_before_the_first_step():
    model = net()
    optimizer = snopt.SNOpt(model)
    before = [p.double() for p in cloned(model)]
    iterate(model.double(), optimizer)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert parameter.dtype == torch.float64
        assert not torch.equal(parameter, old)


def test_a_group_without_names_joins_those_with_names():
    model = net()
    optimizer = snopt.SNOpt(model, model[0].named_parameters(prefix="0"))
    iterate(model, optimizer)
    optimizer.add_param_group({"params": model[2].parameters()})
    assert optimizer.param_groups[1]["param_names"] == ["2.weight", "2.bias"]
    for _ in range(6):
        iterate(model, optimizer)
    assert trained_by(optimizer) == {"0": "kronecker", "2": "kronecker"}
