"""Configurations from text: ``key=value`` on the command line, and JSON in a run folder."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from snopt.base.errors import unknown
from snopt.lab.config import Experiment

__all__ = ["from_dict", "with_settings"]

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
    return tuple(value) if isinstance(value, list) else value


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


def _changed(config: Experiment, key: str, text: str) -> Experiment:
    section, dot, name = key.rpartition(".")
    section = section if dot else "optimizer"
    valid = _setting_names(config)
    if f"{section}.{name}" not in valid:
        # Without its section, or misspelt: look at the last part alone.
        leaves = difflib.get_close_matches(name, {other.partition(".")[2] for other in valid})
        near = [other for other in valid if other.partition(".")[2] in leaves]
        raise unknown("setting", key, near or valid)
    part = getattr(config, section)
    value = parsed(get_type_hints(type(part))[name], text, key)
    return replace(config, **{section: replace(part, **{name: value})})


def _setting_names(config: Experiment) -> list[str]:
    return [
        f"{section.name}.{leaf.name}"
        for section in fields(config)
        if is_dataclass(part := getattr(config, section.name))
        for leaf in fields(part)
    ]


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
