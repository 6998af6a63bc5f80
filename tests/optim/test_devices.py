"""Between refreshes, a step reads one number: whether everything is finite."""

import pytest
import torch
from torch import nn

import snopt
from tests.devices import Elsewhere, Reads
from tests.optim.problems import Field, image_batch, mixed_model

RULES = ["adam", "amortized", "kronecker"]


def ready(model, batch, loss, rule, steps=2, **settings):
    """A model with a gradient, and its optimizer between two refreshes."""
    optimizer = snopt.SNOpt(model, rule=rule, **settings)
    for _ in range(steps + 1):
        optimizer.zero_grad()
        loss(model(batch)).backward()
        if optimizer.counts.iterations < steps:
            optimizer.step()
    assert optimizer.recorder.recording is None
    return optimizer


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.0}, {"weight_decay": 0.1},
                                      {"on_divergence": "rollback"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("rule", RULES)
def test_a_step_reads_one_number(rule, settings):
    model = nn.Sequential(snopt.NeuralODE(Field()), nn.LazyLinear(2))
    x = torch.randn(5, 3)
    model(x)
    optimizer = ready(model, x, lambda y: y.square().mean(), rule, **settings)
    with Reads() as reads:
        optimizer.step()
    assert reads.count == 1
    assert optimizer.counts.refreshes == 1
    optimizer.zero_grad()
    with Reads() as reads:
        optimizer.precondition_()  # without gradients there is nothing to check
    assert reads.count == 0


def test_a_closure_s_loss_is_read_with_the_gradients():
    model = nn.Linear(3, 2)
    optimizer = ready(model, torch.randn(5, 3), lambda y: y.square().mean(), "adam")
    with Reads() as reads:
        optimizer.step(lambda: torch.tensor(1.0))
    assert reads.count == 1


def test_layers_without_factors_and_other_parameters_read_nothing_more():
    """Norms, a recurrent cell and a free parameter: the rule ``adam`` without a basis."""
    model = mixed_model()
    x, _ = image_batch()
    optimizer = ready(model, x, lambda y: y.square().mean(), "adam")
    with Reads() as reads:
        optimizer.step()
    assert reads.count == 1


@pytest.mark.parametrize("rule", RULES)
def test_a_step_stays_on_the_device_of_the_parameters(rule):
    """A state that was saved on the CPU continues on ``meta``; all gradients are 0.01 there."""
    model, x = mixed_model(), image_batch()[0]
    source = ready(model, x, lambda y: y.square().mean(), rule)
    optimizer = snopt.SNOpt(mixed_model().to("meta"), rule=rule)
    optimizer.load_state_dict(source.state_dict())
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.empty_like(param)
    for _ in range(2):
        with Elsewhere() as elsewhere:
            optimizer.step()
        assert elsewhere.reads == 1
        assert elsewhere.copies.shapes == []
        if rule == "adam":  # torch's Adam counts its steps on the CPU
            assert elsewhere.made == []
    assert optimizer.counts.skipped == 0
