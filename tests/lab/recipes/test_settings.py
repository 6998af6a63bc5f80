"""Configurations from text and from JSON."""

import json
import re
from dataclasses import asdict
from typing import get_args

import pytest

from snopt.base.errors import UnknownName
from snopt.lab.config import Experiment, Scale
from snopt.lab.optimizers import OPTIMIZERS
from snopt.lab.recipes.catalogue import RECIPES, recipe
from snopt.lab.recipes.settings import from_dict, with_settings


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize("task", RECIPES)
def test_every_recipe_survives_json(task, scale):
    for optimizer in OPTIMIZERS:
        config = recipe(task, optimizer, scale)
        assert from_dict(Experiment, json.loads(json.dumps(asdict(config)))) == config


def test_settings_are_read_as_the_type_of_their_field():
    config = with_settings(
        recipe("gas"),
        [
            "lr=3e-4",
            "momentum=none",
            "milestones=10,20",
            "data.examples=100",
            "model.hypernetwork=yes",
            "model.activation=softplus",
            "train.until=nll,0.5",
            "solver.method=rk4",
        ],
    )
    assert config.optimizer.lr == 3e-4
    assert config.optimizer.momentum is None
    assert config.optimizer.milestones == (10, 20)
    assert config.data.examples == 100
    assert config.model.hypernetwork is True
    assert config.model.activation == "softplus"
    assert config.train.until == ("nll", 0.5)
    assert config.solver.method == "rk4"


def test_the_given_configuration_is_not_changed():
    config = recipe("digits")
    with_settings(config, ["lr=1"])
    assert config == recipe("digits")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("lr", "key=value"),
        ("lr=fast", "'fast' is not of type float"),
        ("batch_size=3", "did you mean 'train.batch_size'?"),
        ("model.widht=3", "did you mean 'model.width'?"),
        ("modle.width=3", "did you mean 'model.width'?"),
        ("model.activation=relu", "Valid names: softplus, tanh"),
        ("model.hypernetwork=maybe", "is not of type bool"),
        ("task=mnist", "unknown setting 'task'"),
        ("train.batch_size=0", "must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(setting, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        with_settings(recipe("digits"), [setting])


def test_a_record_from_before_a_setting_reads_as_its_default():
    content = asdict(recipe("digits"))
    for section, name in (
        ("data", "hold_out"), ("model", "base_variance"), ("solver", "step_size"),
    ):  # fmt: skip
        del content[section][name]
    assert from_dict(Experiment, content) == recipe("digits")


def test_unknown_fields_of_an_old_record_are_named():
    content = asdict(recipe("digits"))
    content["optimizer"]["speed"] = 3
    with pytest.raises(UnknownName, match="speed"):
        from_dict(Experiment, content)
