"""Checkpoints, copies and pickles: the copy goes on exactly as the original does."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from snopt.kronecker import KroneckerOptions
from snopt.optim import SNOpt
from tests.optim.problems import image_batch, iterate, mixed_model, same_parameters, train

RULES = ["adam", "amortized", "kronecker"]


def later(seed):
    return image_batch(8, seed + 100)


def saved(value):
    """Through a file and back, with tensors only."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def options(rule):
    return {"rule": rule, "refresh_every": 4, "lr": 1e-2}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [0, 3, 4, 6])
def test_a_restored_run_equals_the_uninterrupted_one(rule, steps):
    model = mixed_model()
    optimizer = SNOpt(model, **options(rule))
    train(model, optimizer, steps)
    model_state, state = saved(model.state_dict()), saved(optimizer.state_dict())
    train(model, optimizer, 7, later)
    other = mixed_model(seed=9)
    restored = SNOpt(other, **options(rule))
    train(other, restored, 2)
    other.load_state_dict(model_state)
    restored.load_state_dict(state)
    train(other, restored, 7, later)
    assert same_parameters(model, other)
    assert restored.counts == optimizer.counts


def test_the_state_holds_tensors_and_plain_numbers_only():
    model = mixed_model()
    optimizer = SNOpt(model)
    train(model, optimizer, 2)
    stack, kinds = [optimizer.state_dict()], set()
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list | tuple):
            stack += item
        else:
            kinds.add(type(item))
    assert kinds <= {torch.Tensor, int, float, str, bool}


def test_factors_keep_their_precision_in_a_half_precision_model():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).bfloat16()
    optimizer = SNOpt(model)
    x = torch.randn(8, 3, dtype=torch.bfloat16)
    model(x).float().pow(2).mean().backward()
    optimizer.step()
    state = saved(optimizer.state_dict())
    other = SNOpt(copy.deepcopy(model))
    other.load_state_dict(state)
    A = other.factors["0"].A
    assert A.dtype == torch.float32
    assert torch.equal(A, optimizer.factors["0"].A)


def test_a_state_moves_to_the_device_of_the_parameters():
    model = nn.Linear(3, 2)
    optimizer = SNOpt(model)
    iterate(model, optimizer)
    meta = SNOpt(nn.Linear(3, 2, device="meta"))
    meta.load_state_dict(optimizer.state_dict())
    state = next(iter(meta.state.values()))
    assert state["bases"][0][0].device.type == "meta"
    assert state["step"] == 1


def test_parameters_meet_by_name_and_not_by_position():
    model = mixed_model()
    optimizer = SNOpt(model)
    train(model, optimizer, 2)
    other = copy.deepcopy(model)
    reordered = SNOpt(other, list(reversed(list(other.named_parameters()))))
    reordered.load_state_dict(saved(optimizer.state_dict()))
    train(model, optimizer, 3, later)
    train(other, reordered, 3, later)
    assert same_parameters(model, other)


def test_a_state_of_another_optimizer_is_refused():
    model = mixed_model()
    adam = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="not saved by SNOpt"):
        SNOpt(model).load_state_dict(adam.state_dict())
    amortized = SNOpt(model, rule="amortized").state_dict()
    with pytest.raises(ValueError, match=r"create it with rule='amortized'"):
        SNOpt(model).load_state_dict(amortized)
    axes = SNOpt(model, curvature=KroneckerOptions(conv="per_axis")).state_dict()
    with pytest.raises(ValueError, match=r"create it with conv='per_axis'"):
        SNOpt(model).load_state_dict(axes)


@pytest.mark.parametrize("steps", [0, 3, 4])
@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_of_model_and_optimizer_goes_on_alike(way, steps):
    model = mixed_model()
    optimizer = SNOpt(model, refresh_every=4, on_divergence="rollback")
    train(model, optimizer, steps)
    if way == "deepcopy":
        twin, other = copy.deepcopy((model, optimizer))
    else:
        twin, other = pickle.loads(pickle.dumps((model, optimizer)))
    assert other.model is twin
    train(model, optimizer, 6, later)
    train(twin, other, 6, later)
    assert same_parameters(model, twin)


def test_copying_the_model_alone_leaves_the_copy_unrecorded():
    model = mixed_model()
    optimizer = SNOpt(model)
    twin = copy.deepcopy(model)
    assert twin.block.observer is None
    x, y = image_batch()
    nn.functional.cross_entropy(twin(x), y).backward()
    optimizer.step()
    assert optimizer.factors == {}


def test_an_averaged_model_can_be_made_while_recording():
    model = mixed_model()
    optimizer = SNOpt(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    train(model, optimizer, 1)
    average.update_parameters(model)
    pairs = zip(average.module.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
