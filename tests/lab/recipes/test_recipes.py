"""Recipes say what the paper says."""

from typing import get_args

import pytest

from snopt.base.errors import UnknownName
from snopt.lab.config import TaskName
from snopt.lab.data import names
from snopt.lab.optimizers import OPTIMIZERS, grid
from snopt.lab.optimizers.registry import WEIGHT_DECAYS
from snopt.lab.recipes.catalogue import RECIPES, recipe
from snopt.lab.recipes.published import PUBLISHED

PAPER = list(PUBLISHED)


def test_there_is_a_recipe_for_every_data_set_and_the_command_line_knows_it():
    assert set(RECIPES) == set(names()) == set(get_args(TaskName))
    assert len(PAPER) == 9


def test_every_optimizer_has_a_place_in_every_recipe():
    for task in RECIPES:
        for name in OPTIMIZERS:
            assert recipe(task, name).optimizer.name == name


@pytest.mark.parametrize("task", PAPER)
def test_batch_sizes_and_tolerances_are_the_papers(task):
    full = recipe(task, "adam", "full")
    sizes = {"articulary_word_recognition": 256, "character_trajectories": 512, "gas": 1000}
    assert full.train.batch_size == sizes.get(task, 128)
    tolerance = 1e-6 if task in ("circle", "gas", "miniboone") else 1e-3
    assert (full.solver.rtol, full.solver.atol) == (tolerance, tolerance)
    assert full.solver.horizon == (10.0 if task == "circle" else 1.0)


def test_models_are_those_of_the_papers_table_of_fields():
    def model(task):
        return recipe(task, "adam", "full").model

    assert {model(t).width for t in ("mnist", "svhn", "cifar10")} == {64}
    assert model("spoken_arabic_digits").width == model("character_trajectories").width == 32
    assert model("articulary_word_recognition").width == 64
    assert (model("circle").width, model("circle").layers, model("circle").hypernetwork) == (
        64, 1, True,
    )  # fmt: skip
    assert (model("gas").width, model("gas").layers, model("gas").stacks) == (160, 3, 5)
    miniboone = model("miniboone")
    assert (miniboone.width, miniboone.layers, miniboone.activation) == (860, 2, "softplus")


@pytest.mark.parametrize("task", PAPER)
def test_the_papers_snopt_is_algorithm_2_with_damping_from_its_set(task):
    config = recipe(task, "snopt_amortized", "full").optimizer
    assert config.damping in (0.1, 0.05, 0.03)
    assert config.refresh_first == config.refresh_every
    assert config.weight_decay in WEIGHT_DECAYS


@pytest.mark.parametrize("task", PAPER)
def test_series_keep_adam_for_what_is_not_the_field(task):
    series = recipe(task, "sgd", "full").model.kind == "series"
    for name in ("adam", "sgd", "snopt_amortized", "snopt", "muon"):
        assert (recipe(task, name).optimizer.rest_lr is not None) == series


def test_a_shorter_run_has_its_schedule_in_proportion():
    task = "character_trajectories"
    full, cpu = (recipe(task, "adam", scale) for scale in ("full", "cpu"))
    assert full.optimizer.milestones == (300, 600, 900)
    assert cpu.optimizer.milestones == (75, 150, 225)
    assert cpu.train.iterations == 300


@pytest.mark.parametrize("task", RECIPES)
def test_adamw_is_not_adam(task):
    assert recipe(task, "adamw").optimizer.weight_decay > 0


def test_the_grid_is_the_papers():
    assert [len(grid(name)) for name in ("adam", "sgd", "snopt_amortized")] == [33, 33, 33]
    assert (grid("adam")[0]["lr"], grid("adam")[-1]["lr"]) == (1e-4, 5e-2)
    assert (grid("sgd")[0]["lr"], grid("sgd")[-1]["lr"]) == (1e-3, 5e-1)


@pytest.mark.parametrize(
    "arguments", [("mnsit",), ("mnist", "adan"), ("digits", "adan"), ("mnist", "adam", "tiny")]
)
def test_unknown_names_are_refused(arguments):
    with pytest.raises(UnknownName, match="Valid names"):
        recipe(*arguments)
