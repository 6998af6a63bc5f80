"""Configurations from text: ``key=value`` on the command line, and JSON in a run folder."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from snopt.base.errors import unknown
from snopt.lab.config import Experiment, OptimizerConfig
from snopt.lab.optimizers import options
from snopt.optim.config import RULE_DEFAULTS

Frozen = TypeVar("Frozen")


def from_dict(kind: type[Frozen], values: Mapping[str, Any]) -> Frozen:
    """Make a configuration from nested dictionaries, as read from JSON.

    Args:
        kind: the dataclass to make.
        values: its fields by name.

    Raises:
        UnknownName: If the dataclass does not have a field.

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
    """Turn lists back into tuples and dictionaries into dataclasses."""
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r} is not a {hint.__name__}")
        return from_dict(hint, value)
    return tuple(_revived(None, part) for part in value) if isinstance(value, list) else value


def with_settings(config: Experiment, settings: Iterable[str]) -> Experiment:
    """Return a configuration with some settings changed.

    Args:
        config: the configuration.
        settings: ``"section.name=value"``, for example ``"train.batch_size=64"``. Settings of the
            optimizer need no section: ``"lr=0.01"``.

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
    start, given = config.optimizer, set()
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise no_setting(setting)
        given.add(key.strip().removeprefix("optimizer."))
        config = _changed(config, key.strip(), text.strip())
    return replace(config, optimizer=_suiting_the_rule(config.optimizer, start, given))


def _suiting_the_rule(
    optimizer: OptimizerConfig, start: OptimizerConfig, given: set[str]
) -> OptimizerConfig:
    """Replace the defaults of one rule of SNOpt by those of another that was set."""
    if "rule" not in given:
        return optimizer
    before = RULE_DEFAULTS.get(options(start.name).get("rule", ""))
    after = RULE_DEFAULTS.get(dict(optimizer.options)["rule"])
    if before is None or after is None:  # An unknown rule is reported when SNOpt is made.
        return optimizer
    other: dict[str, Any] = {
        name: after[name]
        for name in ("lr", "weight_decay")
        if name not in given and getattr(start, name) == before[name]
    }
    return replace(optimizer, **other)


def no_setting(text: str) -> ValueError:
    """Return the error for a setting without a value."""
    return ValueError(f"{text!r} is not a setting; write key=value, for example lr=0.01")


def settings_of(config: Experiment) -> dict[str, Any]:
    """Return every setting that :func:`with_settings` can change, with its value.

    Those of the optimizer come first and without a section, including its own options.

    Example:
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> settings = settings_of(recipe("digits", "adam"))
        >>> settings["lr"], settings["betas"], settings["model.width"]
        (0.01, (0.9, 0.999), 64)
    """
    optimizer = config.optimizer
    found = {**vars(optimizer), **options(optimizer.name), **dict(optimizer.options)}
    del found["options"]
    for section, part in vars(config).items():
        if is_dataclass(part) and section != "optimizer":
            found |= {f"{section}.{name}": value for name, value in vars(part).items()}
    return found


def _changed(config: Experiment, key: str, text: str) -> Experiment:
    key = key.removeprefix("optimizer.")
    valid = settings_of(config)
    if key not in valid:
        # Without its section, or misspelt: compare the last part alone.
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
    """Parse a value of the type of a default, or ``none``; any plain type if the default is None.

    Example:
        >>> like((0.9, 0.999), "0.9,0.99", "betas"), like(None, "4", "foreach")
        ((0.9, 0.99), 4)
    """
    hints: dict[type, Any] = {type(None): int | float | bool | str, int: int | float}
    hint = hints.get(type(default), type(default))
    if isinstance(default, tuple):
        hint = types.GenericAlias(tuple, (float,) * len(default))
    return parsed(hint | None, text, key)


def parsed(hint: Any, text: str, key: str) -> Any:
    """Parse a value of a given type.

    Args:
        hint: the type: numbers, strings, booleans, literals, tuples of them, or a union.
        text: the value as text.
        key: name of the setting, for the error message.

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
        *first, last = (choice for choice in choices if choice is not type(None))
        for choice in first:
            with suppress(ValueError):
                return parsed(choice, text, key)
        return parsed(last, text, key)
    if origin is Literal:
        if text not in choices:
            raise unknown(key, text, choices)
        return text
    if origin is tuple:
        words = [word for word in text.split(",") if word]
        kinds = (choices[0],) * len(words) if choices[-1] is Ellipsis else choices
        if len(words) != len(kinds):
            raise ValueError(f"{key}={text}: {len(kinds)} values with commas are needed")
        return tuple(parsed(kind, word, key) for kind, word in zip(kinds, words, strict=True))
    try:
        return BOOLEANS[text.lower()] if hint is bool else hint(text)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{key}={text}: {text!r} is not of type {hint.__name__}") from error


BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
