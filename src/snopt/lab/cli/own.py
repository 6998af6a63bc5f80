"""Tasks of the user's own: ``snopt train module:function``."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from snopt.base.errors import unknown
from snopt.lab.cli.options import RunOptions, UsageError, usage
from snopt.lab.recipes.settings import from_dict, like, parsed
from snopt.lab.train import Listener, Outcome, Parts, Task, TrainConfig, train

__all__ = ["OwnRun"]


@dataclass(frozen=True)
class OwnRun:
    """A run of the task and the parts that a function returns.

    Attributes:
        function: its name as ``module:function``.
        arguments: its arguments.
        train: how long to train, in which batches, when to evaluate.
    """

    function: str
    arguments: Mapping[str, Any]
    train: TrainConfig

    @classmethod
    def of(cls, name: str, seed: int, lr: float | None, options: RunOptions) -> OwnRun:
        """Read the options of the command line.

        A setting ``train.KEY`` is one of :class:`TrainConfig`; one without a section is an argument
        of the function. It also gets the seed and the learning rate if it has such arguments.
        """
        with usage():
            made = _function(name)
            defaults = {
                key: argument.default
                for key, argument in inspect.signature(made).parameters.items()
            }
            arguments = {"seed": seed} if "seed" in defaults else {}
            length: dict[str, Any] = {"iterations": options.iterations, "epochs": options.epochs}
            settings = [*options.set, *(() if lr is None else (f"lr={lr}",))]
            known = get_type_hints(TrainConfig)
            for setting in settings:
                key, _, text = setting.partition("=")
                field = key.removeprefix("train.")
                if key.startswith("train.") and field in known:
                    length[field] = parsed(known[field], text, key)
                elif key in defaults:
                    default = defaults[key]
                    plain = None if default is inspect.Parameter.empty else default
                    arguments[key] = like(plain, text, key)
                else:
                    valid = [*defaults, *(f"train.{field.name}" for field in fields(TrainConfig))]
                    raise unknown("setting", key, valid)
            config = TrainConfig(seed=seed, max_seconds=options.max_seconds, **length)
            return cls(name, arguments, options.until_reached(config))

    @classmethod
    def read(cls, folder: Path) -> OwnRun | None:
        """Read back the run of a folder; None if it is not one of a function."""
        try:
            content = json.loads((folder / "config.json").read_text("utf-8"))
            own = content["own"]
            return cls(own["function"], own["arguments"], from_dict(TrainConfig, content["train"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def longer(self, options: RunOptions) -> OwnRun:
        """Change when the run ends."""
        with usage():
            length: dict[str, Any] = {}
            if options.iterations is not None or options.epochs is not None:
                length = {"iterations": options.iterations, "epochs": options.epochs}
            if options.max_seconds is not None:
                length["max_seconds"] = options.max_seconds
            return replace(self, train=options.until_reached(replace(self.train, **length)))

    def make(self) -> tuple[Task, Parts]:
        """Call the function."""
        made = _function(self.function)(**self.arguments)
        if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Parts)):
            raise UsageError(
                f"{self.function} returned a {type(made).__name__}; it must return a task and "
                "snopt.lab.train.Parts, as a tuple"
            )
        return made

    def run(
        self,
        out: Path | None,
        *,
        resume: bool,
        overwrite: bool,
        options: RunOptions,
        listeners: Sequence[Listener] = (),
    ) -> Outcome:
        """Train."""
        task, parts = self.make()
        folder = out or Path("out") / task.name / f"seed{self.train.seed}"
        watching = [*options.listeners(folder), *listeners]
        own = {"function": self.function, "arguments": dict(self.arguments)}
        return train(
            task,
            parts,
            self.train,
            folder,
            describe={"own": own},
            resume=resume,
            overwrite=overwrite,
            listeners=watching,
        )


def _function(name: str) -> Any:
    """Import what ``module:function`` names; modules of the working folder are found."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"{name}: there is no module {module}; give it as module:function and start the "
            "command in the folder that contains it"
        ) from error
    except AttributeError as error:
        raise UsageError(f"{name}: the module {module} has no {attribute}") from error
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__name__}, not a function")
    return found
