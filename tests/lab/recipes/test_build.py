"""From a configuration to a task and its parts."""

import sys
from dataclasses import replace

import pytest
import torch

from snopt.base.errors import InvalidOption
from snopt.horizon import HorizonOptimizer
from snopt.lab.config import ModelConfig, SolverConfig
from snopt.lab.data import Batch, DataCorrupted, Dataset, Spec, Splits
from snopt.lab.recipes.build import build, build_model, build_parts
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.pictures import projected
from snopt.lab.recipes.settings import with_settings
from snopt.lab.recipes.tasks import Classification, Density

# The package exports a function of the same name.
MODULE = sys.modules["snopt.lab.recipes.build"]
IMAGE = Spec("images", "image", (3, 12, 12), 5, None, "generated", "Noise.")
SERIES = Spec("series", "series", (6, 2), 4, 6, "generated", "Noise.")
TABLE = Spec("table", "table", (3,), None, None, "generated", "Noise.")


def splits(x: torch.Tensor, spec: Spec) -> Splits:
    y = torch.zeros(len(x), dtype=torch.int64)
    data = Dataset(Batch(x, y), spec)
    return Splits(data, data, data, spec)


def points(**change: object) -> Splits:
    spec = Spec("points", "table", (2,), 2, None, "generated", "Noise.")
    return splits(torch.randn(20, 2), replace(spec, **change))


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon", "snopt_amortized"])
def test_all_optimizers_start_from_the_same_weights(optimizer):
    _, reference = build(recipe("digits", "snopt", "smoke"))
    _, parts = build(recipe("digits", optimizer, "smoke"))
    for a, b in zip(reference.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_another_seed_gives_other_weights():
    config = recipe("digits", "snopt", "smoke")
    _, one = build(config)
    _, other = build(with_settings(config, ["train.seed=1"]))
    assert not torch.equal(one.model.readout.weight, other.model.readout.weight)


@pytest.mark.parametrize(
    ("kind", "spec", "x", "shape"),
    [
        ("image", IMAGE, torch.zeros(2, 3, 12, 12), (2, 5)),
        ("residual", IMAGE, torch.zeros(2, 3, 12, 12), (2, 5)),
        ("flow", IMAGE, torch.zeros(2, 3, 12, 12), (2, 5)),
        ("series", SERIES, torch.zeros(2, 6, 2), (2, 4)),
    ],
)
def test_classifiers_fit_their_data(kind, spec, x, shape):
    model = build_model(ModelConfig(kind, width=4), SolverConfig(rtol=0.1, atol=0.1), spec)
    assert model(x).shape == shape


def test_a_density_fits_its_data():
    config = ModelConfig("density", width=4, stacks=2, divergence="rademacher", kinetic=0.1)
    model = build_model(config, SolverConfig(rtol=0.1, atol=0.1), TABLE)
    task = Density("table", *[Dataset(Batch(torch.randn(8, 3)), TABLE)] * 3)
    batch = task.train.batch(range(8))
    assert model.kinetic == 0.1
    assert task.loss(model, batch).isfinite()
    assert task.metrics(model, batch)["nll"].isfinite()
    assert task.picture(model) == {}
    with pytest.raises(TypeError, match="has no density"):
        task.loss(torch.nn.Linear(3, 3), batch)


def test_examples_limit_every_split(monkeypatch):
    monkeypatch.setattr(MODULE, "load", lambda *_, **__: points())
    task, _ = build(with_settings(recipe("two_moons", "adam"), ["data.examples=7"]))
    assert (len(task.train), len(task.valid), len(task.test)) == (7, 7, 7)


def test_data_that_is_not_finite_is_refused_with_its_place(monkeypatch):
    bad = points()
    bad.train.tensors.x[4, 1] = torch.nan
    bad.train.tensors.x[9, 0] = torch.inf
    monkeypatch.setattr(MODULE, "load", lambda *_, **__: bad)
    with pytest.raises(DataCorrupted, match=r"points, train .* 2 of 20 examples .* number 4"):
        build(recipe("two_moons", "adam"))


def test_data_of_a_wrong_shape_is_refused_with_both_shapes(monkeypatch):
    monkeypatch.setattr(MODULE, "load", lambda *_, **__: points(shape=(3,)))
    with pytest.raises(DataCorrupted, match=r"shape \(2,\), but \(3,\) is expected"):
        build(recipe("two_moons", "adam"))


def test_the_horizon_is_learned_where_there_is_one():
    config = with_settings(recipe("digits", "adam", "smoke"), ["horizon.policy=newton"])
    parts = build_parts(config, replace(IMAGE, shape=(1, 4, 4)))
    assert isinstance(parts.horizon, HorizonOptimizer)
    assert parts.horizon.policy == "newton"
    assert build_parts(recipe("digits"), replace(IMAGE, shape=(1, 4, 4))).horizon is None


def test_a_recurrent_model_has_no_horizon_to_learn():
    config = with_settings(recipe("spirals", "adam", "smoke"), ["horizon.policy=feedback"])
    with pytest.raises(InvalidOption, match="no single horizon"):
        build_parts(config, SERIES)


def test_the_flow_of_the_plane_is_drawn_with_its_decision():
    data = points()
    data.test.tensors.y[::2] = 1
    task = Classification("points", data.train, data.valid, data.test)
    model = build_model(ModelConfig("flow", width=4), SolverConfig(), data.spec)
    pictures = task.picture(model)
    paths = torch.tensor(pictures["flow"]["paths"])
    assert paths.shape == (20, 40, 2)
    assert torch.allclose(paths[:, 0], data.test.tensors.x)
    values = torch.tensor(pictures["decision"]["values"])
    left, _, bottom, _ = pictures["decision"]["extent"]
    corner = model(torch.tensor([[left, bottom]])).softmax(1)[0, 1]
    assert values.shape == (100, 100)
    assert torch.allclose(values[0, 0], corner, atol=1e-5)


def test_paths_of_many_dimensions_are_shown_where_their_ends_differ_most():
    paths = torch.zeros(2, 50, 5)
    paths[-1, :, 3], paths[-1, :, 1] = 9 * torch.randn(50), 3 * torch.randn(50)
    shown = projected(paths)
    assert shown.shape == (2, 50, 2)
    assert torch.allclose(shown[-1].var(dim=0).sum(), paths[-1].var(dim=0).sum())


def test_a_model_without_a_flow_has_no_picture():
    data = points()
    task = Classification("points", data.train, data.valid, data.test)
    assert task.picture(torch.nn.Linear(2, 2)) == {}
    with pytest.raises(ValueError, match="no labels"):
        task.loss(torch.nn.Linear(2, 2), Batch(torch.zeros(1, 2)))
