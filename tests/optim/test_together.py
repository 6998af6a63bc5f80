"""Layers and parameters that are processed together move as if each were alone."""

import copy

import pytest
import torch
from torch import nn

import snopt
from snopt.kronecker import Slot, view_of
from snopt.optim import batching
from snopt.optim.averaging import move_
from snopt.optim.fallback import plain_directions
from snopt.optim.update import Hyper, slot_updates
from tests.optim.problems import image_batch, mixed_model, same_parameters, train

SHAPES = ((3, 4), (4, 2), (3, 4), (2, 5))


def layer(outputs, inputs, steps, dtype):
    """A slot with a gradient and a state after some steps; without steps it has no moments."""
    module = nn.Linear(inputs, outputs, dtype=dtype)
    for param in module.parameters():
        param.grad = torch.randn_like(param)
    slot = Slot(view_of(module), False, (("layer", "weight"),))
    kept = torch.promote_types(dtype, torch.float32)
    factors = [torch.linalg.qr(torch.randn(1, d, d)) for d in slot.view.mode_sizes]
    state = {"bases": [[U.to(kept)] for U, _ in factors],
             "values": [torch.rand(1, d).to(kept) for d in slot.view.mode_sizes]}  # fmt: skip
    if steps:
        square = torch.rand(1, *slot.view.mode_sizes).to(kept)
        state |= {"step": steps, "square": [square], "second": [square.clone()]}
    return slot, state


@pytest.mark.parametrize("limit", [1, batching.BATCH])
@pytest.mark.parametrize("rule", ["adam", "amortized", "kronecker"])
def test_layers_with_different_steps_and_precisions(rule, limit, monkeypatch):
    monkeypatch.setattr(batching, "BATCH", limit)
    kinds = zip(SHAPES, (3, 0, 3, 5), (torch.float32,) * 3 + (torch.bfloat16,), strict=True)
    layers = [layer(*shape, steps, dtype) for shape, steps, dtype in kinds]
    hyper = Hyper(rule, momentum=0.9, decay=0.99, damping=1e-3, weight_decay=0.1)
    alone = [(slot, copy.deepcopy(state)) for slot, state in layers]
    expected = [slot_updates([pair], hyper)[0] for pair in alone]
    found = {id(params[0]): directions for params, directions in slot_updates(layers, hyper)}
    assert len(found) == len(layers)
    for params, directions in expected:
        assert all(map(torch.equal, found[id(params[0])], directions))
    for (_, state), (_, other) in zip(layers, alone, strict=True):
        assert state["step"] == other["step"]
        for name in ("square", "second", "momentum"):
            assert all(map(torch.equal, state.get(name, []), other.get(name, [])))


def test_parameters_without_factors_and_averages():
    kinds = [((3, 2), torch.float32), ((4,), torch.float32), ((2, 2), torch.complex64),
             ((5, 1), torch.bfloat16)]  # fmt: skip
    params = [torch.randn(shape, dtype=dtype) for shape, dtype in kinds]
    for param in params:
        param.grad = torch.randn_like(param)
    states = [{"plain_step": i, "plain_square": torch.zeros(4)} if i == 1 else {}
              for i in range(len(params))]  # fmt: skip
    states[0]["count"] = states[3]["count"] = 7
    single = copy.deepcopy((params, states))
    for param, state in zip(*single, strict=True):
        directions = plain_directions([param], [state], decay=0.9, damping=1e-3)
        move_([param], [state], directions, lr=0.1, momentum=0.9, weight_decay=0.3)
    directions = plain_directions(params, states, decay=0.9, damping=1e-3)
    move_(params, states, directions, lr=0.1, momentum=0.9, weight_decay=0.3)
    assert all(map(torch.equal, params, single[0]))
    assert all(map(torch.equal, (s["fast"] for s in states), (s["fast"] for s in single[1])))


def test_a_state_with_steps_in_tensors_continues_as_one_with_numbers():
    """Earlier releases counted the steps of a layer in a tensor."""
    model = mixed_model()
    optimizer = snopt.SNOpt(model)
    train(model, optimizer, 3)
    other = copy.deepcopy(model)
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        if "step" in entry:
            entry["step"] = torch.tensor(entry["step"])
    resumed = snopt.SNOpt(other)
    resumed.load_state_dict(state)

    def later(seed):
        return image_batch(seed=seed + 3)

    train(model, optimizer, 4, later)
    train(other, resumed, 4, later)
    assert same_parameters(model, other)
