"""SINGD for layers inside a solver."""

import copy
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from snopt.adjoint import Checkpoint, NeuralODE
from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers import make_optimizers
from snopt.lab.optimizers.recursive import recursive_adjoint
from snopt.lab.optimizers.singd import StageSINGD, supported
from snopt.models import CNF, ImageClassifier
from snopt.models.fields import TanhField

X, Y = torch.randn(6, 1, 8, 8, dtype=torch.float64), torch.arange(6)


@pytest.fixture
def _installed():
    pytest.importorskip("singd")


def classifier(**solver) -> ImageClassifier:
    torch.manual_seed(0)
    return ImageClassifier(1, 6, 4, **{"rtol": 1e-3, "atol": 1e-3, **solver}).double()


def learn(model: nn.Module, optimizer: StageSINGD, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("keep", [None, 0])
def test_the_checkpoint_adjoint_shows_singd_what_backpropagation_shows(keep):
    factors = []
    for solver in ({"adjoint": "direct"}, {"adjoint": Checkpoint(keep)}):
        model = classifier(**solver)
        optimizer = StageSINGD(model, supported(model), 0.1)
        functional.cross_entropy(model(X), Y).backward()
        inner = optimizer.inner
        factors.append([m.to_dense() for f in (inner.H_Ks, inner.H_Cs) for m in f.values()])
        assert optimizer.calls[model.stem[0]] == 1
        assert optimizer.calls[model.block.field.first] > 5
    for a, b in zip(*factors, strict=True):
        assert torch.allclose(a, b)


@pytest.mark.usefixtures("_installed")
def test_the_factor_of_inputs_is_a_mean_over_calls(monkeypatch):
    model = classifier(adjoint="direct", method="rk4", options={"step_size": 0.5})
    optimizer = StageSINGD(model, supported(model), 0.1)
    inputs = []
    model.block.field.second.register_forward_pre_hook(lambda m, a: inputs.append(a[0].detach()))
    functional.cross_entropy(model(X), Y).backward()
    found = {}
    monkeypatch.setattr(optimizer.inner, "step", lambda: found.update(optimizer.inner.H_Ks))
    optimizer.step()
    assert len(inputs) == 8
    patches = torch.cat([functional.unfold(x, 3, padding=1) for x in inputs])
    a = patches.transpose(1, 2).reshape(-1, 45)
    a = torch.cat([a, torch.ones_like(a[:, :1])], dim=1)
    assert torch.allclose(found["block.field.second"].to_dense(), a.T @ a / len(a))
    assert not optimizer.calls


@pytest.mark.usefixtures("_installed")
def test_singd_learns_and_goes_on_from_its_state(tmp_path):
    models = [classifier(), classifier()]
    first, second = (StageSINGD(model, supported(model), 0.05) for model in models)
    losses = learn(models[0], first, 11)
    assert losses[-1] < 0.95 * losses[0]
    torch.save(first.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second.load_state_dict(copy.deepcopy(state))
    models[1].load_state_dict(models[0].state_dict())
    for model, optimizer in zip(models, (first, second), strict=True):
        optimizer.param_groups[0]["lr"] = 0.01
        learn(model, optimizer, 10)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)
    assert second.inner.param_groups[0]["lr"] == 0.01


@pytest.mark.usefixtures("_installed")
def test_what_singd_cannot_see_is_refused():
    flow = CNF(2, (4,), rtol=1e-2, atol=1e-2)
    StageSINGD(flow, supported(flow), 0.1)
    with pytest.raises(ValueError, match=r"shape \(1,\): singd needs a batch axis"):
        flow.loss(torch.randn(3, 2))
    switched = classifier()
    recursive_adjoint(switched)
    for model in (classifier(adjoint="backsolve"), classifier(adjoint="reversible"), switched):
        with pytest.raises(ValueError, match="use adjoint='checkpoint' or 'direct'"):
            StageSINGD(model, supported(model), 0.1)
    compiled = NeuralODE(TanhField(2), compile=True)
    with pytest.raises(ValueError, match="compile=True"):
        StageSINGD(compiled, supported(compiled), 0.1)


def test_singd_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "singd", None)
    with pytest.raises(ImportError, match="pip install singd"):
        make_optimizers(classifier(), OptimizerConfig("singd", 0.1))
