"""Optimizers by name."""

import copy
import math
import sys

import pytest
import torch
from torch import nn

from snopt.adjoint import NeuralODE
from snopt.base.errors import UnknownName
from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers import OPTIMIZERS, make_optimizers, make_schedulers
from snopt.lab.optimizers.wrapped import MatrixMuon
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.run import experiment_of, run
from snopt.lab.recipes.settings import with_settings
from snopt.lab.train.step import needs_closure
from snopt.models.fields import TanhField
from snopt.optim import SNOpt

INSTALLED = [name for name, entry in OPTIMIZERS.items() if entry.installed]


def model() -> nn.Module:
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())
    block = NeuralODE(TanhField(4, depth=2), rtol=1e-2, atol=1e-2)
    return nn.Sequential(conv, block, nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))


def learn(net: nn.Module, optimizers: list, steps: int) -> None:
    x = torch.randn(8, 1, 3, 3, generator=torch.Generator().manual_seed(1))

    def closure():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = (net(x) - torch.arange(4.0)).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        closure()
        for optimizer in optimizers:
            optimizer.step(closure if needs_closure(optimizer) else None)


@pytest.mark.parametrize("rest_lr", [None, 1e-3])
@pytest.mark.parametrize("name", INSTALLED)
def test_every_parameter_is_trained_by_exactly_one_optimizer(name, rest_lr):
    net = model()
    optimizers = make_optimizers(net, OptimizerConfig(name, 0.01, rest_lr=rest_lr))
    trained = [id(p) for o in optimizers for g in o.param_groups for p in g["params"]]
    assert sorted(trained) == sorted(id(p) for p in net.parameters())
    before = [p.detach().clone() for p in net.parameters()]
    learn(net, optimizers, 2)
    assert all((p != old).any() for p, old in zip(net.parameters(), before, strict=True))


def test_the_rest_is_adams_and_the_field_is_not():
    net = model()
    sgd, adam = make_optimizers(net, OptimizerConfig("sgd", 0.1, rest_lr=1e-3))
    assert [type(o) for o in (sgd, adam)] == [torch.optim.SGD, torch.optim.Adam]
    assert {id(p) for p in sgd.param_groups[0]["params"]} == {id(p) for p in net[1].parameters()}
    assert adam.param_groups[0]["lr"] == 1e-3


def test_snopt_covers_only_the_field_when_the_rest_is_adams():
    (everything,) = make_optimizers(model(), OptimizerConfig("snopt", 0.1))
    (field,) = make_optimizers(model(), OptimizerConfig("snopt_amortized", 0.1, rest_lr=1e-3))
    assert isinstance(everything, SNOpt)
    assert everything.config.rule == "adam"
    assert field.config.rule == "amortized"
    assert any(name.startswith("0") for name in everything.recorder.slots)
    assert all(name.startswith("1") for name in field.recorder.slots)
    assert field.param_groups[0]["fallback_ratio"] == pytest.approx(0.01)


def test_muon_moves_a_convolution_as_torchs_moves_its_matrix():
    weight = nn.Parameter(torch.randn(4, 2, 3, 3, dtype=torch.float64))
    matrix = nn.Parameter(weight.detach().flatten(1).clone())
    ours = MatrixMuon([weight], 0.1, momentum=0.9, weight_decay=0.01)
    theirs = torch.optim.Muon([matrix], lr=0.1, momentum=0.9, weight_decay=0.01)
    for k in range(3):
        gradient = torch.randn(4, 18, generator=torch.Generator().manual_seed(k)).double()
        weight.grad, matrix.grad = gradient.view_as(weight).clone(), gradient
        ours.step()
        theirs.step()
    assert torch.equal(weight.flatten(1), matrix)


def test_muon_goes_on_from_its_state_and_follows_a_schedule():
    config = OptimizerConfig("muon", 0.1, milestones=(2,), gamma=0.1)
    nets = [model(), model()]
    whole = make_optimizers(nets[0], config)
    schedule = make_schedulers(whole, config)
    learn(nets[0], whole, 2)
    nets[1].load_state_dict(nets[0].state_dict())
    resumed = make_optimizers(nets[1], config)
    for scheduler in schedule * 2:
        scheduler.step()
    for old, new in zip(whole, resumed, strict=True):
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    assert resumed[0].param_groups[0]["lr"] == pytest.approx(0.01)
    before = nets[0][0][0].weight.detach().clone()
    learn(nets[0], whole, 1)
    learn(nets[1], resumed, 1)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)
    # Muon's step has the size of its rate, times the root of the shape's ratio.
    assert (nets[0][0][0].weight - before).norm() < 0.05


@pytest.mark.parametrize("name", sorted({"lbfgs", "recursive", "soap", "singd"} & set(INSTALLED)))
def test_a_run_goes_on_where_it_was_cut(tmp_path, name):
    config = recipe("digits", name, "smoke")
    run(with_settings(config, ["train.iterations=4"]), tmp_path / "whole")
    run(with_settings(config, ["train.iterations=2"]), tmp_path / "cut")
    longer = with_settings(experiment_of(tmp_path / "cut"), ["train.iterations=4"])
    assert run(longer, tmp_path / "cut", resume=True).iteration == 4
    whole, cut = (
        torch.load(tmp_path / folder / "checkpoints" / "step-00000004.pt", weights_only=True)
        for folder in ("whole", "cut")
    )
    assert all(torch.equal(whole["model"][key], cut["model"][key]) for key in whole["model"])


@pytest.mark.usefixtures("data_root")
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("lbfgs", "model.kind=image"),
        ("lbfgs", "model.kind=residual"),
        ("recursive", "model.kind=residual"),
        ("adam", "solver.adjoint=reversible"),
        ("sgd", "solver.adjoint=reversible"),
        ("snopt", "solver.adjoint=reversible"),
    ],
)
def test_mnist_runs(tmp_path, name, setting):
    outcome = run(with_settings(recipe("mnist", name, "smoke"), [setting]), tmp_path / "run")
    assert (outcome.status, outcome.iteration) == ("finished", 3)
    assert math.isfinite(outcome.last["test"]["loss"])


def test_schedules_multiply_the_rates_of_all_optimizers():
    config = OptimizerConfig("sgd", 1.0, rest_lr=0.5, milestones=(1,), gamma=0.1)
    net = model()
    optimizers = make_optimizers(net, config)
    schedulers = make_schedulers(optimizers, config)
    learn(net, optimizers, 1)
    for scheduler in schedulers:
        scheduler.step()
    assert [o.param_groups[0]["lr"] for o in optimizers] == pytest.approx([0.1, 0.05])
    assert make_schedulers(optimizers, OptimizerConfig("sgd", 1.0)) == []


def test_soap_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(ImportError, match="pip install pytorch_optimizer"):
        make_optimizers(model(), OptimizerConfig("soap", 0.01))


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("lbfgs", {"weight_decay": 0.1}),
        ("adam", {"momentum": 0.5}),
        ("adam", {"damping": 0.1}),
        ("sgd", {"refresh_every": 7}),
        ("muon", {"conv": "per_axis"}),
    ],
)
def test_settings_that_an_optimizer_does_not_have_are_refused(name, setting):
    with pytest.raises(ValueError, match=f"{name} does not have this setting; it has lr"):
        make_optimizers(model(), OptimizerConfig(name, 0.1, **setting))


def test_unknown_names_are_refused():
    with pytest.raises(UnknownName, match="did you mean 'adam'"):
        make_optimizers(model(), OptimizerConfig("adan", 0.1))
