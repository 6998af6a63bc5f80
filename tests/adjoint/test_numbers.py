"""Horizon and carried step: double precision through every cast, copy and checkpoint."""

import copy
import pickle

import pytest
import torch
from torch import nn

import snopt
from tests.problems import TanhField

CASTS = [
    lambda m: m.to(torch.bfloat16),
    lambda m: m.to("cpu", torch.float16),
    lambda m: m.type(torch.float16),
    lambda m: m.half().double(),
    lambda m: m.float(),
    copy.deepcopy,
    lambda m: pickle.loads(pickle.dumps(m)),
]


def block(horizon=0.3):
    ode = snopt.NeuralODE(TanhField(), horizon=horizon)
    ode(torch.ones(2, 3, dtype=torch.float64))
    return ode


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("nested", [False, True])
def test_numbers_survive_casts_and_copies(cast, nested):
    ode = block()
    carried = ode.number("carried")
    assert carried > 0.0
    model = cast(nn.Sequential(ode) if nested else ode)
    after = model[0] if nested else model
    assert (after.horizon, after.number("carried")) == (0.3, carried)
    assert after.horizon_buffer.dtype == torch.float64
    after.horizon = 0.7
    assert (after.horizon, after.horizon_buffer.item()) == (0.7, 0.7)


def test_a_double_model_is_solved_to_the_double_horizon():
    class Constant(nn.Module):
        def forward(self, t, x):
            return torch.ones_like(x)

    out = snopt.NeuralODE(Constant(), horizon=0.1)(torch.zeros(1, dtype=torch.float64))
    assert out.item() == pytest.approx(0.1, abs=1e-16)


@pytest.mark.parametrize("assign", [False, True])
def test_the_state_dict_has_both_and_takes_older_ones(assign):
    ode, other = block(), snopt.NeuralODE(TanhField(), horizon=2.0)
    state = ode.state_dict()
    assert state["horizon_buffer"].dtype == torch.float64
    other.load_state_dict(state, assign=assign)
    assert (other.horizon, other.number("carried")) == (0.3, ode.number("carried"))
    older = {k: v.float() if k.endswith("_buffer") else v for k, v in state.items()}
    other.load_state_dict(older, assign=assign)
    assert other.horizon == torch.tensor(0.3).item()
    assert other.horizon_buffer.dtype == torch.float64


def test_what_writes_to_the_buffers_is_noticed():
    """As the broadcast of DistributedDataParallel does, and functional_call."""
    ode = block()
    with torch.no_grad():
        ode.horizon_buffer.copy_(torch.tensor(0.9, dtype=torch.float64))
    assert ode.horizon == 0.9
    x = torch.ones(2, 3, dtype=torch.float64)
    other = {"horizon_buffer": torch.tensor(0.4, dtype=torch.float64)}
    there = torch.func.functional_call(ode, other, (x,))
    assert ode.horizon == 0.9
    ode.horizon = 0.4
    assert torch.allclose(there, ode(x), rtol=1e-6)


def test_reading_does_not_touch_the_buffer(monkeypatch):
    ode = block()
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: pytest.fail("a tensor was read"))
    assert ode.horizon == 0.3


def test_blocks_can_be_made_without_memory_and_in_inference_mode():
    with torch.device("meta"):
        ode = snopt.NeuralODE(TanhField(), horizon=0.3)
    assert ode.horizon == 0.3
    ode = ode.to_empty(device="cpu")
    assert (ode.horizon, ode.horizon_buffer.item()) == (0.3, 0.3)
    with torch.inference_mode():
        ode = snopt.NeuralODE(TanhField(), horizon=0.3)
        ode(torch.ones(2, 3, dtype=torch.float64))
    assert ode.horizon == 0.3
