"""Configurations from text and from JSON."""

import json
import re
from dataclasses import asdict
from typing import get_args

import pytest
from torch import nn

from snopt.adjoint import NeuralODE
from snopt.base.errors import UnknownName
from snopt.lab.config import Experiment, Scale
from snopt.lab.optimizers import OPTIMIZERS, make_optimizers
from snopt.lab.recipes.catalogue import RECIPES, recipe
from snopt.lab.recipes.settings import from_dict, settings_of, with_settings


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


@pytest.mark.parametrize(
    ("optimizer", "setting", "value"),
    [
        ("adam", "betas=0.8,0.95", (0.8, 0.95)),
        ("adam", "amsgrad=true", True),
        ("sgd", "nesterov=yes", True),
        ("sgd", "dampening=0.1", 0.1),
        ("lbfgs", "line_search_fn=strong_wolfe", "strong_wolfe"),
        ("snopt", "on_divergence=rollback", "rollback"),
        ("snopt", "decay=0.9", 0.9),
        ("snopt", "averaging=0.5", 0.5),
        ("snopt", "optimizer.max_size=64", 64),
        ("recursive", "cg_iterations=3", 3),
    ],
)
def test_every_argument_of_an_optimizer_can_be_set(optimizer, setting, value):
    settings = [setting, "nesterov=true", "dampening=0"] if "nesterov" in setting else [setting]
    config = with_settings(recipe("digits", optimizer), settings)
    name = setting.partition("=")[0].removeprefix("optimizer.")
    assert settings_of(config)[name] == value
    assert from_dict(Experiment, json.loads(json.dumps(asdict(config)))) == config
    model = nn.Sequential(NeuralODE(nn.Linear(2, 2)), nn.Linear(2, 2))
    (made,) = make_optimizers(model, config.optimizer)
    curvature = vars(made.config.curvature) if optimizer == "snopt" else {}
    found = {**made.defaults, **vars(made), **vars(getattr(made, "config", object)), **curvature}
    assert found[name] == value


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_listed_setting_can_be_set_to_its_own_value(optimizer):
    config = recipe("digits", optimizer)
    for name, value in settings_of(config).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert settings_of(with_settings(config, [f"{name}={text}"]))[name] == value


def test_another_rule_of_snopt_has_its_own_rate_and_weight_decay():
    def of(*settings):
        found = with_settings(recipe("digits"), settings).optimizer
        return found.lr, found.weight_decay

    assert of("rule=adam") == of() == (2e-2, 0.3)
    assert of("rule=kronecker") == (5e-3, 0.0)
    assert of("rule=kronecker", "weight_decay=0.3") == (5e-3, 0.3)
    assert of("lr=0.1", "rule=amortized") == (0.1, 0.0)
    moved = with_settings(recipe("digits", "adam"), ["name=snopt", "rule=kronecker"])
    assert moved.optimizer.lr == recipe("digits", "adam").optimizer.lr
    with pytest.raises(UnknownName, match="setting 'rule'"):
        with_settings(recipe("digits", "adam"), ["rule=adam"])


def test_options_of_another_optimizer_are_refused():
    config = with_settings(recipe("digits", "adam"), ["amsgrad=true", "name=sgd"])
    with pytest.raises(ValueError, match="amsgrad: sgd does not have this setting"):
        make_optimizers(nn.Linear(2, 2), config.optimizer)
