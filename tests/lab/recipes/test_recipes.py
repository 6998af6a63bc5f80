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
def test_the_papers_snopt_is_algorithm_2_with_damping_from_its_set(task):
    config = recipe(task, "snopt_amortized", "full").optimizer
    assert config.damping in (0.1, 0.05, 0.03)
    assert config.refresh_first == config.refresh_every
    assert config.weight_decay in WEIGHT_DECAYS


@pytest.mark.parametrize("task", PAPER)
def test_on_series_the_papers_methods_keep_adam_for_what_is_not_the_field(task):
    series = recipe(task, "sgd", "full").model.kind == "series"
    for name in ("sgd", "snopt_amortized"):
        assert (recipe(task, name).optimizer.rest_lr is not None) == series
    for name in ("adam", "adamw", "snopt", "muon", "soap"):
        assert recipe(task, name).optimizer.rest_lr is None


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
