"""Gradients that are not finite do no harm."""

import warnings

import pytest
import torch
from torch import nn

from snopt.optim import SNOpt, refresh
from tests.optim.problems import image_batch, mixed_model, train


def poison(model, optimizer):
    """One iteration whose gradient is NaN."""
    optimizer.zero_grad()
    x, y = image_batch()
    nn.functional.cross_entropy(model(x), y).backward()
    model.conv.weight.grad[0, 0, 0, 0] = float("nan")
    optimizer.step()


def test_an_update_with_a_bad_gradient_is_skipped_counted_and_warned_of_once():
    model = mixed_model()
    optimizer = SNOpt(model)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.warns(RuntimeWarning, match="skipping this update"):
        poison(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poison(model, optimizer)
    assert optimizer.counts.skipped == 2
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    train(model, optimizer, 1)
    assert optimizer.counts.refreshes == 1
    assert all(torch.isfinite(f.A).all() for f in optimizer.factors.values())


def test_a_bad_loss_of_a_closure_is_skipped_too():
    model = mixed_model()
    optimizer = SNOpt(model)
    with pytest.warns(RuntimeWarning, match="not finite"):
        optimizer.step(lambda: torch.tensor(float("inf")))
    assert optimizer.counts.skipped == 1


def test_rollback_restores_the_last_good_parameters_and_raises_damping():
    model = mixed_model()
    optimizer = SNOpt(model, rule="amortized", refresh_every=2, on_divergence="rollback")
    train(model, optimizer, 2)
    before = [p.detach().clone() for p in model.parameters()]
    train(model, optimizer, 1)  # a refresh: these parameters are kept
    with pytest.warns(RuntimeWarning):
        poison(model, optimizer)
    assert optimizer.counts.rollbacks == 1
    assert optimizer.guard.caution == 4.0
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    train(model, optimizer, 2)


def test_a_restored_optimizer_rolls_back_to_the_parameters_kept_before():
    model, other = mixed_model(), mixed_model(seed=9)
    optimizer = SNOpt(model, on_divergence="rollback")
    train(model, optimizer, 1)
    kept = [p.detach().clone() for p in mixed_model().parameters()]
    train(model, optimizer, 1)
    # Parameters in another order meet by name, and so do their copies.
    params = list(reversed(list(other.named_parameters())))
    restored = SNOpt(other, params, on_divergence="rollback")
    other.load_state_dict(model.state_dict())
    restored.load_state_dict(optimizer.state_dict())
    with pytest.warns(RuntimeWarning, match="not finite"):
        poison(other, restored)
    assert restored.counts.rollbacks == 1
    assert all(torch.equal(p, q) for p, q in zip(other.parameters(), kept, strict=True))


def test_without_a_snapshot_there_is_nothing_to_go_back_to():
    assert SNOpt(mixed_model()).rollback() is False


def test_raising_names_the_iteration_and_the_remedy():
    model = mixed_model()
    optimizer = SNOpt(model, on_divergence="raise")
    train(model, optimizer, 3)
    with pytest.raises(FloatingPointError, match=r"iteration 3; lower the learning rate"):
        poison(model, optimizer)


def test_a_failed_decomposition_keeps_the_old_basis(monkeypatch):
    model = mixed_model()
    optimizer = SNOpt(model, refresh_every=1)
    train(model, optimizer, 1)
    old = [b.clone() for b in optimizer.state[model.head.weight]["bases"][0]]
    monkeypatch.setattr(refresh, "shared_eigh", lambda blocks: [None] * len(blocks))
    with pytest.warns(RuntimeWarning, match="keeping its old basis"):
        train(model, optimizer, 1)
    assert optimizer.counts.eigh_failures == 4
    new = optimizer.state[model.head.weight]["bases"][0]
    assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))
