"""The image classifier and its discrete counterpart."""

import pytest
import torch
from torch.nn import functional

import snopt
from snopt.models import ImageClassifier, ResidualClassifier
from tests.problems import descend


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (1, 8)])
def test_logits_have_one_column_a_class(channels, side):
    x = torch.randn(2, channels, side, side)
    for kind in (ImageClassifier, ResidualClassifier):
        assert kind(channels, 7, width=4)(x).shape == (2, 7)


@pytest.mark.parametrize("channels", [1, 3])
def test_parameters_are_those_of_the_authors_program(channels):
    stem = channels * 64 * 9 + 2 * 64 * 64 * 16  # without biases
    field = 2 * (65 * 64 * 9 + 64)
    for model in (ImageClassifier(channels), ResidualClassifier(channels)):
        assert sum(p.numel() for p in model.parameters()) == stem + field + 64 * 10 + 10


def test_one_residual_layer_is_one_euler_step_of_the_ode():
    continuous = ImageClassifier(1, 5, width=4, method="euler", options={"step_size": 1.0})
    discrete = ResidualClassifier(1, 5, width=4)
    weights = {
        key.replace("block.field", "layers.0"): value
        for key, value in continuous.state_dict().items()
        if not key.endswith("_buffer")
    }
    discrete.load_state_dict(weights)
    x = torch.randn(3, 1, 12, 12)
    assert torch.allclose(discrete(x), continuous(x), atol=1e-6)


def test_deeper_residual_models_have_layers_of_their_own():
    first, second = ResidualClassifier(1, 5, width=4, depth=2).layers
    assert not torch.equal(first.first.weight, second.first.weight)


def test_the_horizon_and_the_solver_reach_the_block():
    model = ImageClassifier(1, 5, width=4, horizon=0.5, method="rk4", options={"step_size": 0.25})
    model(torch.randn(2, 1, 8, 8))
    assert model.block.horizon == 0.5
    assert model.block.stats.accepted == 2


@pytest.mark.parametrize("kind", [ImageClassifier, ResidualClassifier])
def test_snopt_trains_it(kind):
    model = kind(1, 4, width=8)
    x, y = torch.randn(16, 1, 12, 12), torch.randint(4, (16,))
    losses = descend(snopt.SNOpt(model), lambda: functional.cross_entropy(model(x), y), 10)
    assert losses[-1] < 0.9 * losses[0]
