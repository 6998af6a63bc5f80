"""The paper's SNOpt has whole factors for every layer, in every recipe and at every scale."""

import warnings
from typing import get_args

import pytest
import torch
from torch import nn

from snopt.kronecker import is_covered
from snopt.lab.config import Scale
from snopt.lab.data import Spec
from snopt.lab.optimizers.registry import make_optimizers
from snopt.lab.recipes.build import build_model
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.published import PUBLISHED
from snopt.models import CNF

SERIES = ("spoken_arabic_digits", "articulary_word_recognition", "character_trajectories")
SHAPES = {
    "mnist": (1, 28, 28),
    "svhn": (3, 32, 32),
    "cifar10": (3, 32, 32),
    "spoken_arabic_digits": (93, 13),
    "articulary_word_recognition": (144, 9),
    "character_trajectories": (182, 3),
    "circle": (2,),
    "gas": (8,),
    "miniboone": (43,),
}
LARGEST = {"mnist": 1024, "svhn": 1024, "cifar10": 1024, "miniboone": 861, "gas": 161}


def spec_of(task):
    return Spec(task, "table", SHAPES[task], 10, None, "generated", "shape only")


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize("task", PUBLISHED)
def test_every_layer_has_one_block_in_every_mode(task, scale):
    config = recipe(task, "snopt_amortized", scale)
    model = build_model(config.model, config.solver, spec_of(task))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (optimizer,) = make_optimizers(model, config.optimizer)
    layers = {name for name, module in model.named_modules() if is_covered(module)}
    if task in SERIES:  # the paper leaves the read-out to Adam
        layers.remove("head")
    assert set(optimizer.recorder.slots) == layers
    rows = {row.name: row for row in optimizer.summary().rows if row.trained_by != "adam"}
    assert set(rows) == layers
    largest = 0
    for name, row in rows.items():
        layer = model.get_submodule(name)
        inputs = layer.weight[0].numel() + (layer.bias is not None)
        groups = getattr(layer, "groups", 1)
        assert row.factors == ((layer.weight.shape[0] // groups,), (inputs,)), name
        largest = max(largest, inputs, layer.weight.shape[0])
    if scale == "full" and task in LARGEST:
        assert largest == LARGEST[task]
    assert optimizer.config.rule == "amortized"
    assert optimizer.config.curvature.averaging == 0


@pytest.mark.parametrize("task", ["mnist", "circle", "character_trajectories"])
def test_a_refresh_fills_every_factor(task):
    config = recipe(task, "snopt_amortized", "smoke")
    spec = spec_of(task)
    model = build_model(config.model, config.solver, spec)
    (optimizer,) = make_optimizers(model, config.optimizer)
    x = torch.randn(6, *spec.shape) if task != "character_trajectories" else torch.randn(6, 5, 3)
    loss = (
        model.loss(x)
        if isinstance(model, CNF)
        else nn.functional.cross_entropy(model(x), torch.arange(6))
    )
    loss.backward()
    optimizer.step()
    assert optimizer.batch_size == 6
    assert set(optimizer.factors) == set(optimizer.recorder.slots)
