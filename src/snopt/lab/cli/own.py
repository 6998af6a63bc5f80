"""Tasks of your own: ``snopt train module:function``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from snopt.base.errors import unknown
from snopt.lab.cli.options import RunOptions, UsageError, usage
from snopt.lab.recipes.settings import from_dict, like, no_setting, parsed
from snopt.lab.train import Outcome, Parts, RunFolderError, TrainConfig, train
from snopt.lab.train.folder import read_config


@dataclass(frozen=True)
class OwnRun:
    """A run of the task and the parts that a function returns.

    Attributes:
        function: its name as ``module:function``.
        arguments: its arguments.
    """

    function: str
    arguments: Mapping[str, Any]
    train: TrainConfig

    @classmethod
    def of(cls, name: str, seed: int, lr: float | None, options: RunOptions) -> OwnRun:
        """Read the options of the command line.

        A setting ``train.KEY`` is one of :class:`TrainConfig`; one without a section is an argument
        of the function. It also receives the seed and the learning rate if it has such arguments.
        """
        with usage():
            signature = inspect.signature(_function(name)).parameters
            takes = {key for key, each in signature.items() if each.kind not in VARIABLE}
            anything = any(
                each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.values()
            )
            known = {f"train.{key}": hint for key, hint in get_type_hints(TrainConfig).items()}
            arguments: dict[str, Any] = {}
            length: dict[str, Any] = {"seed": seed}
            for setting in [*options.set, *(() if lr is None else (f"lr={lr}",))]:
                key, equals, text = setting.partition("=")
                if not equals:
                    raise no_setting(setting)
                if key in ("seed", "train.seed"):
                    length["seed"] = parsed(int, text, key)
                elif key in known:
                    length[key.removeprefix("train.")] = parsed(known[key], text, key)
                elif key in takes or anything:
                    default = signature[key].default if key in takes else None
                    plain = None if default is inspect.Parameter.empty else default
                    arguments[key] = like(plain, text, key)
                else:
                    raise unknown("setting", key, [*takes, *known])
            if "seed" in takes:
                arguments["seed"] = length["seed"]
            missing = [
                key
                for key in takes - set(arguments)
                if signature[key].default is inspect.Parameter.empty
            ]
            if missing:
                raise UsageError(f"{name} needs {missing[0]}; give --set {missing[0]}=VALUE")
            return cls(name, arguments, TrainConfig(**{**length, **options.limits()}))

    @classmethod
    def read(cls, folder: Path, options: RunOptions) -> OwnRun | None:
        """Read the run of a folder, and change when it ends; None if it is not of a function."""
        content = read_config(folder)
        if "own" not in content:
            return None
        try:
            own = content["own"]
            found = cls(own["function"], own["arguments"], from_dict(TrainConfig, content["train"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{folder / 'config.json'} is damaged: {error}.") from error
        with usage():
            return replace(found, train=replace(found.train, **options.limits()))

    def run(
        self,
        out: Path | None,
        options: RunOptions,
        *,
        tensorboard: bool,
        resume: bool,
        overwrite: bool,
    ) -> Outcome:
        """Call the function and train what it returns."""
        made = _function(self.function)(**self.arguments)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Parts)):
            raise UsageError(
                f"{self.function} returned a {type(made).__name__}; it must return a task and "
                "snopt.lab.train.Parts, as a tuple."
            )
        task, parts = made
        folder = out or Path("out") / task.name / f"seed{self.train.seed}"
        return train(
            task,
            parts,
            self.train,
            folder,
            describe={"own": {"function": self.function, "arguments": dict(self.arguments)}},
            resume=resume,
            overwrite=overwrite,
            listeners=options.listeners(folder, tensorboard=tensorboard),
        )


VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""Kinds of parameters that take any number of arguments."""


def _function(name: str) -> Any:
    """Import ``module:function``, also from the working folder."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise UsageError(f"{name} is not module:function")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"{name}: there is no module {module}; give it as module:function and start the "
            "command in the folder that contains it."
        ) from error
    except AttributeError as error:
        raise UsageError(f"{name}: the module {module} has no {attribute}.") from error
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__name__}, not a function.")
    return found
