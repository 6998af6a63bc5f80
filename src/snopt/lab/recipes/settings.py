"""Configurations from text: ``key=value`` on the command line, and JSON in a run folder."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from snopt.base.errors import unknown
from snopt.lab.config import Experiment
from snopt.lab.optimizers import options

__all__ = ["from_dict", "like", "parsed", "settings_of", "with_settings"]

Frozen = TypeVar("Frozen")


def from_dict(kind: type[Frozen], values: Mapping[str, Any]) -> Frozen:
    """Make a configuration from nested dictionaries, as JSON has kept it.

    Args:
        kind: the dataclass to make.
        values: its fields; those that it does not know are a mistake.

    Example:
        >>> from snopt.lab.config import OptimizerConfig
        >>> from_dict(OptimizerConfig, {"name": "sgd", "lr": 0.1, "milestones": [5]}).milestones
        (5,)
    """
    hints = get_type_hints(kind)
    for name in values:
        if name not in hints:
            raise unknown(f"setting of {kind.__name__}", name, hints)
    return kind(**{name: _revived(hints[name], value) for name, value in values.items()})


def _revived(hint: Any, value: Any) -> Any:
    """Undo what JSON did to a value: tuples became lists, dataclasses dictionaries."""
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r} is not a {hint.__name__}")
        return from_dict(hint, value)
    return tuple(_revived(None, part) for part in value) if isinstance(value, list) else value


def with_settings(config: Experiment, settings: Iterable[str]) -> Experiment:
    """Change fields of a configuration.

    Args:
        config: where to start from.
        settings: ``"section.name=value"``, for example ``"train.batch_size=64"``; without a
            section it is the optimizer's: ``"lr=0.01"``.

    Example:
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> digits = with_settings(recipe("digits"), ["lr=0.02", "model.width=8"])
        >>> digits.optimizer.lr, digits.model.width
        (0.02, 8)
        >>> with_settings(digits, ["model.widht=8"])
        Traceback (most recent call last):
        ...
        snopt.base.errors.UnknownName: unknown setting 'model.widht'; did you mean ...
    """
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting!r} is no setting: write key=value, for example lr=0.01")
        config = _changed(config, key.strip(), text.strip())
    return config


def settings_of(config: Experiment) -> dict[str, Any]:
    """Return every setting that :func:`with_settings` can change, with its value.

    Those of the optimizer come first and without a section, its own options among them.

    Example:
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> settings = settings_of(recipe("digits", "adam"))
        >>> settings["lr"], settings["betas"], settings["model.width"]
        (0.01, (0.9, 0.999), 64)
    """
    optimizer = {name: value for name, value in _leaves(config, "optimizer") if name != "options"}
    return {
        **optimizer,
        **options(config.optimizer.name),
        **dict(config.optimizer.options),
        **{
            f"{section}.{name}": value
            for section in (field.name for field in fields(config))
            if section != "optimizer" and is_dataclass(getattr(config, section))
            for name, value in _leaves(config, section)
        },
    }


def _leaves(config: Experiment, section: str) -> list[tuple[str, Any]]:
    part = getattr(config, section)
    return [(field.name, getattr(part, field.name)) for field in fields(part)]


def _changed(config: Experiment, key: str, text: str) -> Experiment:
    key = key.removeprefix("optimizer.")
    valid = settings_of(config)
    if key not in valid:
        # Without its section, or misspelt: look at the last part alone.
        names = {other.rpartition(".")[2] for other in valid}
        leaves = difflib.get_close_matches(key.rpartition(".")[2], names)
        near = [other for other in valid if other.rpartition(".")[2] in leaves]
        raise unknown("setting", key, near or valid)
    section, dot, name = key.rpartition(".")
    section = section if dot else "optimizer"
    part = getattr(config, section)
    hints = get_type_hints(type(part))
    if name in hints:
        change = {name: parsed(hints[name], text, key)}
    else:
        known = dict(config.optimizer.options)
        known[name] = like(options(config.optimizer.name)[name], text, key)
        change = {"options": tuple(sorted(known.items()))}
    return replace(config, **{section: replace(part, **change)})


def like(default: Any, text: str, key: str) -> Any:
    """Read a value of the type of a default; anything plain if the default is None.

    Example:
        >>> like((0.9, 0.999), "0.9,0.99", "betas"), like(None, "4", "foreach")
        ((0.9, 0.99), 4)
    """
    if text.lower() == "none":
        return None
    if isinstance(default, tuple):
        return tuple(like(0.0, word, key) for word in text.split(","))
    kinds = {type(None): (int, float, bool, str), int: (int, float)}
    for kind in kinds.get(type(default), ()):
        with suppress(ValueError):
            return parsed(kind, text, key)
    return parsed(type(default), text, key)


def parsed(hint: Any, text: str, key: str) -> Any:
    """Read a value of a given type.

    Args:
        hint: the type: numbers, strings, booleans, literals, tuples of them, or None among them.
        text: what was written.
        key: whose value it is, for the error.

    Example:
        >>> parsed(int | None, "none", "examples"), parsed(tuple[int, ...], "3,4", "milestones")
        (None, (3, 4))
        >>> parsed(int, "many", "train.batch_size")
        Traceback (most recent call last):
        ...
        ValueError: train.batch_size=many: 'many' is not of type int
    """
    origin, choices = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if text.lower() == "none" and type(None) in choices:
            return None
        hint = next(choice for choice in choices if choice is not type(None))
        return parsed(hint, text, key)
    if origin is Literal:
        if text not in choices:
            raise unknown(key, text, choices)
        return text
    if origin is tuple:
        words = [word for word in text.split(",") if word]
        kinds = [choices[0]] * len(words) if choices[-1] is Ellipsis else choices
        return tuple(parsed(kind, word, key) for kind, word in zip(kinds, words, strict=True))
    if hint is bool and text.lower() in ("true", "false", "yes", "no", "1", "0"):
        return text.lower() in ("true", "yes", "1")
    try:
        if hint is bool:
            raise ValueError(text)
        return hint(text)
    except ValueError as error:
        raise ValueError(f"{key}={text}: {text!r} is not of type {hint.__name__}") from error
