"""Warnings name layers, cause and the user's line; the summary tells what is trained how."""

import warnings

import pytest
import torch
from torch import nn

import snopt
from snopt.optim import refresh
from tests.optim.problems import Field, trained_by


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def backward(model):
    model(torch.randn(5, 3)).square().mean().backward()


def evaluated(model):
    model[0].eval()
    backward(model)


def twice_differentiated(model):
    x = torch.randn(5, 3, requires_grad=True)
    inner = torch.autograd.grad(model[0](x).sum(), x, create_graph=True)[0]
    (inner.square().sum() + model[2](torch.randn(5, 4)).square().sum()).backward()


def functional(model):
    h = nn.functional.linear(torch.randn(5, 3), model[0].weight, model[0].bias)
    model[2](h).square().mean().backward()


def not_finite(model):
    model[0](torch.full((5, 3), 1e25)).sum().backward()


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (evaluated, "called in evaluation mode only"),
        (twice_differentiated, "differentiated only with create_graph=True"),
        (functional, "never called as a module"),
        (not_finite, "inputs or output gradients not finite"),
    ],
)
def test_the_warning_names_the_cause_the_layer_and_the_line(run, cause):
    model = net()
    optimizer = snopt.SNOpt(model)
    run(model)
    with pytest.warns(RuntimeWarning, match=rf"no curvature recorded for '0' \({cause}") as caught:
        optimizer.step()
    assert caught[0].filename == __file__
    assert trained_by(optimizer)["0"] == "adam (not recorded)"


def test_a_field_that_nothing_observes_is_the_cause():
    field = Field()
    optimizer = snopt.SNOpt(field, fields=field)
    snopt.odeint(field, torch.randn(4, 3), [0.0, 1.0])[-1].square().mean().backward()
    with pytest.warns(RuntimeWarning, match=r"'first', 'last' \(its vector field was not observed"):
        optimizer.step()


def test_layers_with_one_cause_are_named_together():
    model = net().eval()
    optimizer = snopt.SNOpt(model)
    backward(model)
    with pytest.warns(RuntimeWarning, match=r"'0', '2' \(called in evaluation mode only\)"):
        optimizer.step()
    assert optimizer.factors == {}


def scaled(optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(torch.zeros(()))
    scaler.step(optimizer)


@pytest.mark.parametrize(
    "step", [lambda o: o.step(), lambda o: o.step(lambda: torch.tensor(torch.inf)), scaled]
)
def test_a_skipped_update_points_at_the_callers_line(step):
    model = net()
    optimizer = snopt.SNOpt(model)
    if step is not scaled:
        backward(model)
        model[0].weight.grad.fill_(torch.nan)
    else:
        evaluated(model)
    with pytest.warns(RuntimeWarning) as caught:
        step(optimizer)
    assert caught[0].filename == __file__


def make(model):
    return snopt.SNOpt(model, curvature=snopt.KroneckerOptions(max_size=2))


def test_a_cut_factor_points_at_the_callers_line():
    with pytest.warns(RuntimeWarning, match=r"max_size=2 .*'0' \(4\)") as caught:
        make(net())
    assert caught[0].filename == __file__


def test_the_summary_knows_what_is_frozen():
    model = net()
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    assert trained_by(snopt.SNOpt(model)) == {"0": "nothing", "2": "kronecker", "2.bias": "nothing"}
    model[0].bias.requires_grad_(True)
    optimizer = snopt.SNOpt(model)
    rows = trained_by(optimizer)
    assert rows == {
        "0.weight": "nothing", "0.bias": "adam", "2": "kronecker", "2.bias": "nothing"
    }  # fmt: skip
    backward(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert trained_by(optimizer) == rows
    total = sum(row.parameters for row in optimizer.summary().rows)
    assert total == sum(p.numel() for p in model.parameters())


def test_a_layer_whose_first_decomposition_fails_is_trained_by_adam(monkeypatch):
    monkeypatch.setattr(refresh, "shared_eigh", lambda blocks: [None] * len(blocks))
    model = net()
    optimizer = snopt.SNOpt(model)
    backward(model)
    with pytest.warns(RuntimeWarning, match="could not be decomposed"):
        optimizer.step()
    assert trained_by(optimizer) == {"0": "adam (not recorded)", "2": "adam (not recorded)"}
