"""What is heard of a training call, and that listening leaves no trace."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

import snopt
from snopt.horizon.measure import Listener
from tests.problems import PairField, TanhField

ADJOINTS = ["checkpoint", "backsolve", "reversible", "direct"]


def make(**kwargs):
    torch.manual_seed(0)
    # The leapfrog is of second order: a tolerance that it can reach.
    tolerance = 1e-5 if kwargs.get("adjoint") == "reversible" else 1e-8
    return snopt.NeuralODE(TanhField(), 0.8, rtol=tolerance, atol=tolerance, **kwargs)


def batch(n=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, dtype=torch.float64, generator=generator)


def losses(x):
    """One loss an example."""
    return (x.sum(-1) - 1.0).square()


def slopes(block, x, per_example=losses, h=1e-4):
    """The derivatives in T of the examples' losses, by central differences."""
    values = []
    with torch.no_grad():
        for T in (0.8 + h, 0.8 - h):
            end = snopt.odeint(block.field, x, [0.0, T], rtol=1e-11, atol=1e-11)
            end = end[-1] if isinstance(end, torch.Tensor) else _last(end)
            values.append(per_example(end))
    return (values[0] - values[1]) / (2 * h)


def _last(state):
    return state[-1] if isinstance(state, torch.Tensor) else tuple(_last(s) for s in state)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_slopes_are_those_of_the_loss_under_every_adjoint(adjoint):
    block, x = make(adjoint=adjoint), batch()
    listener = Listener(block, None, False)
    losses(block(x)).mean().backward()
    found, true = listener.collect(), slopes(block, x)
    assert found.slope == pytest.approx(true.mean().item(), rel=1e-3)


@pytest.mark.slow
def test_a_compiled_block_is_heard_as_well():
    found = []
    for compiled in (False, True):
        block, x = make(compile=compiled), batch()
        listener = Listener(block, None, False)
        losses(block(x)).mean().backward()
        found.append(listener.collect().slope)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_parts_of_a_nested_state_add_up():
    torch.manual_seed(0)
    block = snopt.NeuralODE(PairField(), 0.8, rtol=1e-8, atol=1e-8)
    wide = batch(6).repeat(1, 2)
    x = (wide[:, :2], (wide[:, 2:4], wide[:, 4]))

    def per_example(state):
        a, (b, c) = state
        return a.square().sum(1) + b.sum(1) * c

    listener = Listener(block, None, False)
    per_example(block(x)).mean().backward()
    found, true = listener.collect(), slopes(block, x, per_example)
    assert found.slope == pytest.approx(true.mean().item(), rel=1e-4)


def test_a_part_that_the_loss_ignores_counts_nothing():
    torch.manual_seed(0)
    block = snopt.NeuralODE(PairField(), 0.8, rtol=1e-8, atol=1e-8)
    wide = batch(6).repeat(1, 2)
    x = (wide[:, :2], (wide[:, 2:4], wide[:, 4]))
    listener = Listener(block, None, False)
    block(x)[0].sum(1).mean().backward()
    true = slopes(block, x, lambda state: state[0].sum(1))
    assert listener.collect().slope == pytest.approx(true.mean().item(), rel=1e-4)


# ------------------------------------------------------------------------------ several calls


def test_accumulated_batches_are_the_joined_batch():
    block, x = make(), batch(8)
    listener = Listener(block, None, False)
    for part in (x[:4], x[4:]):
        (losses(block(part)).mean() / 2).backward()
    parts = listener.collect()
    losses(block(x)).mean().backward()
    whole = listener.collect()
    assert parts.slope == pytest.approx(whole.slope, rel=1e-6)


def test_calls_of_one_pass_add_up():
    """A block called twice in a row depends on T twice; the total derivative has both."""
    block, x = make(), batch()
    listener = Listener(block, None, False)
    losses(block(block(x))).mean().backward()
    found = listener.collect()
    values = []
    for T in (0.8 + 1e-4, 0.8 - 1e-4):
        block.horizon = T
        with torch.no_grad():
            values.append(losses(block(block(x))))
    true = (values[0] - values[1]) / 2e-4
    assert found.slope == pytest.approx(true.mean().item(), rel=1e-2)


def test_the_running_cost_counts_once_a_pass():
    block, x = make(), batch()
    cost = []

    def running(t, state, params):
        cost.append((float(t), len(params)))
        return state.square().mean() + t

    listener = Listener(block, running, False)
    out = block(x)
    block(x)  # never differentiated
    losses(out).mean().backward()
    expected = out.detach().square().mean().item() + 0.8
    assert listener.collect().running == pytest.approx(expected, rel=1e-6)
    assert cost[0] == (pytest.approx(0.8, rel=1e-6), 4)


def test_the_running_cost_counts_once_for_a_state_of_many_parts():
    torch.manual_seed(0)
    block = snopt.NeuralODE(PairField(), 0.8)
    wide = batch(6).repeat(1, 2)
    listener = Listener(block, lambda t, x, params: t, False)
    a, (b, c) = block((wide[:, :2], (wide[:, 2:4], wide[:, 4])))
    (a.sum() + b.sum() + c.sum()).backward()
    assert listener.collect().running == pytest.approx(0.8)


def test_the_running_cost_is_a_mean_over_passes_and_a_sum_within_one():
    block, x = make(), batch()
    listener = Listener(block, lambda t, x, params: t, False)
    for _ in range(3):
        losses(block(block(x))).mean().backward()
    assert listener.collect().running == pytest.approx(1.6)


# -------------------------------------------------------------------------- what is not heard


def test_only_differentiated_training_calls_to_the_horizon_count():
    block, x = make(), batch()
    listener = Listener(block, None, False)
    block(x)
    block(x, torch.tensor([0.0, 0.5])).sum().backward()
    block(x, t=[0.0, 0.5]).sum().backward()
    with torch.no_grad():
        block(x)
    block.eval()
    block(x).sum().backward()
    assert listener.collect() is None


def test_derivatives_inside_the_loss_are_not_heard():
    block, x = make(adjoint="direct"), batch().requires_grad_()
    listener = Listener(block, None, False)
    out = block(x)
    (inner,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    assert listener.collect() is None
    losses(out).mean().backward()
    assert inner.shape == x.shape


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_listening_changes_no_gradient_by_a_bit(adjoint):
    gradients = []
    for listening in (False, True):
        block, x = make(adjoint=adjoint), batch().requires_grad_()
        listener = Listener(block, None, True) if listening else None
        for _ in range(2):
            losses(block(x)).mean().backward()
        assert listener is None or listener.collect() is not None
        gradients.append([x.grad, *(p.grad for p in block.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_random_numbers_and_buffers_stay_as_they_are():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, t, x):
            return nn.functional.dropout(self.norm(x), 0.5)

    after = []
    for listening in (False, True):
        torch.manual_seed(0)
        block = snopt.NeuralODE(Noisy(), method="euler", options={"step_size": 0.5})
        listener = Listener(block, None, False) if listening else None
        block(torch.randn(4, 3, requires_grad=True)).sum().backward()
        assert listener is None or listener.collect() is not None
        after.append((block.field.norm.running_mean.clone(), torch.rand(1)))
    assert torch.equal(after[0][0], after[1][0])
    assert torch.equal(after[0][1], after[1][1])


def test_an_activation_in_place_does_not_spoil_the_product():
    found = []
    for inplace in (False, True):
        block, x = make(adjoint="direct"), batch()
        listener = Listener(block, None, False)
        nn.functional.relu(block(x), inplace).sum().backward()
        found.append(listener.collect().slope)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


# ------------------------------------------------------------------------------ copies, memory


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_of_a_block_do_not_report(duplicate):
    block, x = make(), batch()
    listener = Listener(block, None, False)
    losses(duplicate(block)(x)).mean().backward()
    assert listener.collect() is None


def test_nothing_is_kept_alive():
    block, x = make(), batch()
    listener = Listener(block, None, True)
    gc.collect()
    gc.disable()
    try:
        out = block(x)
        tape = weakref.ref(out)
        losses(out).mean().backward()
        del out
        assert tape() is None
        gone = weakref.ref(listener)
        del listener
        assert gone() is None
        assert not block._forward_hooks
    finally:
        gc.enable()
