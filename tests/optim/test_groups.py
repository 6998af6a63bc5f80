"""Parameter groups: their own values, and values that are refused."""

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from snopt import KroneckerOptions, PerStep, UniformGrid
from snopt.optim import SNOpt


def model_with_norm():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))


def iterate(model, optimizer, times=3):
    torch.manual_seed(1)
    for x in torch.randn(times, 8, 3):
        optimizer.zero_grad()
        (model(x) - 1).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("rule", ["adam", "amortized"])
def test_a_group_has_its_own_fallback_rate(rule):
    model, other = model_with_norm(), model_with_norm()
    group = {"params": list(model.parameters()), "lr": 0.01, "fallback_lr": 0.003}
    one = SNOpt(model, [group], rule=rule)
    two = SNOpt(other, lr=0.01, fallback_lr=0.003, rule=rule)
    assert "fallback_lr" not in one.param_groups[0]
    iterate(model, one), iterate(other, two)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"lr": -1.0}, ValueError, "lr=-1.0 must not be negative"),
        ({"momentum": 1.5}, ValueError, "momentum=1.5 must be below 1"),
        ({"rule": "amortized"}, TypeError, "rule='amortized', which holds for the whole"),
        ({"refresh_every": 5}, TypeError, "refresh_every=5, which holds for the whole"),
        ({"lr": 0.0, "fallback_lr": 0.1}, ValueError, "fallback_lr=0.1 with lr=0.0"),
    ],
)
def test_a_group_with_a_value_that_makes_no_sense_is_refused(values, error, words):
    model = model_with_norm()
    with pytest.raises(error, match=words):
        SNOpt(model, [{"params": list(model.parameters()), **values}])
    optimizer = SNOpt(model, model[0].parameters())
    with pytest.raises(error, match=words):
        optimizer.add_param_group({"params": model[1].parameters(), **values})


def test_a_fallback_rate_without_a_rate_is_refused():
    with pytest.raises(ValueError, match=r"fallback_lr=0.1 with lr=0.0.*requires_grad_"):
        SNOpt(model_with_norm(), lr=0.0, fallback_lr=0.1)
    assert SNOpt(model_with_norm(), lr=0.0).param_groups[0]["fallback_ratio"] == 1.0


def test_the_average_does_not_depend_on_a_momentum_that_a_scheduler_changes():
    """Where gradients are constant, z and its average do not depend on y at all."""

    def averages(cycle):
        torch.manual_seed(0)
        model = nn.Linear(3, 4, dtype=torch.float64)
        optimizer = SNOpt(model, weight_decay=0.0)
        scheduler = lr_scheduler.OneCycleLR(
            optimizer, 0.05, total_steps=30, cycle_momentum=cycle, base_momentum=0.5
        )
        torch.manual_seed(1)
        for gradient in torch.randn(25, 4, 3, dtype=torch.float64):
            optimizer.zero_grad()
            model.weight.grad, model.bias.grad = gradient.clone(), gradient.sum(1)
            optimizer.step()
            scheduler.step()
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.eval()
        found = [p.detach().clone() for p in model.parameters()]
        optimizer.train()
        assert all(map(torch.equal, before, model.parameters()))
        return found

    with pytest.warns(RuntimeWarning, match="no curvature recorded"):
        steady, cycled = averages(False), averages(True)
    for x, y in zip(steady, cycled, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: SNOpt(model_with_norm(), lr=float("inf")), ValueError, "lr=inf must be finite"),
        (lambda: SNOpt(model_with_norm(), lr="x"), TypeError, "lr='x' must be a number"),
        (lambda: SNOpt(model_with_norm(), refresh_every=2.5), ValueError, "refresh_every=2.5 must"),
        (lambda: SNOpt(model_with_norm(), curvature={}), TypeError, "curvature={} must be"),
        (lambda: SNOpt(model_with_norm(), fields=[3]), TypeError, "fields contains 3, which is"),
        (lambda: KroneckerOptions(quadrature="fine"), TypeError, "quadrature='fine' is not"),
        (lambda: KroneckerOptions(sample=2.5), ValueError, "sample=2.5 must be .*, or None"),
        (lambda: KroneckerOptions(max_size=0), ValueError, "max_size=0 must be a whole number"),
        (lambda: PerStep(0), ValueError, "nodes=0 must be a whole number"),
        (lambda: UniformGrid(1.5), ValueError, r"n=1\.5 must be a whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
