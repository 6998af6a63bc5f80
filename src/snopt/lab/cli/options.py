"""Options shared by the commands that train, and the error for a wrong command line."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from snopt.adjoint import NeuralODE
from snopt.base.errors import unknown
from snopt.horizon import HorizonOptimizer
from snopt.lab.config import Experiment, HorizonPolicy, ModelConfig, Scale, SolverConfig
from snopt.lab.optimizers import OPTIMIZERS, make_optimizers, make_schedulers
from snopt.lab.recipes import recipe, with_settings
from snopt.lab.recipes.build import solver_options
from snopt.lab.recipes.run import Run, Watch
from snopt.lab.recipes.settings import settings_of
from snopt.lab.train import Listener, TensorBoard, progress
from snopt.ode.tableau import TABLEAUS

if TYPE_CHECKING:
    OptimizerName = str
else:  # The choices that the command line offers.
    OptimizerName = Literal[tuple(OPTIMIZERS)]


class UsageError(ValueError):
    """A wrong command line."""


@contextmanager
def usage() -> Iterator[None]:
    """Turn a :class:`ValueError` into a :class:`UsageError`."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def check(config: Experiment, start: Experiment) -> None:
    """Refuse settings that have no effect or are not accepted, before data are read.

    Solver, optimizer and horizon are built for a small stand-in of the model.

    Args:
        config: the experiment.
        start: the recipe before it was changed.
    """
    for names, reason in without_effect(config, changes(config, start)):
        raise UsageError(f"{', '.join(sorted(names))}: no effect {reason}")
    optimizer = config.optimizer
    for name in ("lr", "weight_decay", "gamma"):
        if not math.isfinite(value := getattr(optimizer, name)):
            raise UsageError(f"{name} is {value}; it must be finite.")
    if any(iteration < 1 for iteration in optimizer.milestones):
        raise UsageError(f"milestones are {optimizer.milestones}; they must be at least 1.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block = NeuralODE(nn.Linear(2, 2), **solver_options(config.solver))
        with suppress(ImportError):  # Reported when the run starts.
            made = make_optimizers(nn.Sequential(block, nn.Linear(2, 2)), config.optimizer)
            make_schedulers(made, config.optimizer)
        if config.horizon.policy != "fixed":
            HorizonOptimizer(block, **asdict(config.horizon))


def changes(config: Experiment, start: Experiment) -> set[str]:
    """Return the names of the settings that differ.

    Example:
        >>> changes(recipe("digits", "adam"), recipe("digits", "sgd")) >= {"name", "lr"}
        True
    """
    before = settings_of(start)
    return {name for name, value in settings_of(config).items() if value != before.get(name, value)}


def without_effect(config: Experiment, changed: set[str]) -> Iterator[tuple[set[str], str]]:
    """Yield changed settings that do nothing, each with the reason."""
    kind, optimizer = config.model.kind, config.optimizer
    model = {f"model.{f.name}" for f in fields(ModelConfig) if f.name != "kind"}
    solver = {f"solver.{f.name}" for f in fields(SolverConfig)}
    used = {f"model.{name}" for name in USED[kind]} if kind in USED else model
    unused = model - used
    if kind == "series":
        unused.add("solver.horizon")
    elif kind == "residual":
        unused |= solver
    elif kind == "density":
        unused.add("rest_lr")  # All parameters are those of vector fields.
    if kind not in ("image", "residual"):
        unused.add("conv")
    if kind != "series":
        unused.add("recurrent")
    constant = optimizer.cosine is None and not optimizer.milestones
    method = TABLEAUS.get(config.solver.method or "")
    for names, useless, reason in (
        (unused, True, f"on a model of kind {kind!r}"),
        ({"milestones", "gamma"}, optimizer.cosine is not None, "with cosine"),
        ({"gamma"}, constant, "without milestones"),
        ({"milestones"}, optimizer.gamma == 1, "with gamma=1"),
        ({"loss"}, settings_of(config).get("terminal") == "gradient", "with terminal=gradient"),
        ({"rest_lr"}, "fallback_lr" in dict(optimizer.options), "with fallback_lr"),
        ({"horizon.lr", "horizon.penalty", "horizon.every"},
         config.horizon.policy == "fixed", "with --horizon-policy fixed"),
        ({"solver.rtol", "solver.atol"},
         method is not None and not method.adaptive,
         f"on method {config.solver.method!r}, which takes fixed steps"),
        ({"data.preprocessing"}, config.data.name in ONE_WAY, f"on {config.data.name}"),
    ):  # fmt: skip
        if useless and names & changed:
            yield names & changed, reason


ONE_WAY = ("circle", "two_moons", "spirals")
"""Data sets that are prepared in the same way under every ``data.preprocessing``."""
USED = {"image": {"width"}, "residual": {"width"}, "series": {"width"}, "flow": {"width", "layers"}}
"""Settings that each kind of model has; a density has all of them."""


@dataclass(frozen=True)
class RunOptions:
    """Options of every command that trains.

    Attributes:
        scale: full: the paper's set-up; cpu: minutes on two cores; smoke: seconds.
        iterations: number of updates, instead of the recipe's.
        epochs: passes over the data, instead of the recipe's.
        until: stop a run when a validation metric is reached, for example accuracy=0.98.
        max_seconds: stop a run after this many seconds of training.
        set: settings as key=value: lr=0.01, train.batch_size=64, model.width=32 ...
        quiet: show no progress.
    """

    scale: Scale = "cpu"
    iterations: int | None = None
    epochs: int | None = None
    until: str | None = None
    max_seconds: float | None = None
    set: tuple[str, ...] = ()
    quiet: bool = False

    def experiment(
        self, task: str, optimizer: str, seed: int = 0, horizon: HorizonPolicy = "fixed"
    ) -> Experiment:
        """Return a recipe with these options.

        Example:
            >>> options = RunOptions(until="accuracy=0.9", set=("train.batch_size=64",))
            >>> train = options.experiment("digits", "adam").train
            >>> train.until, train.batch_size
            (('accuracy', 0.9), 64)
        """
        with usage():
            config = recipe(task, optimizer, self.scale)
            config = replace(
                config,
                train=replace(config.train, seed=seed),
                horizon=replace(config.horizon, policy=horizon),
            )
            changed = self.limited(with_settings(config, self.set))
            check(changed, config)
            return changed

    def limited(self, config: Experiment) -> Experiment:
        """Change when an experiment ends."""
        with usage():
            train = replace(config.train, **self.limits())
            if train.until is not None and train.until[0] not in (config.metric, "loss"):
                raise unknown(f"metric of {config.task}", train.until[0], [config.metric, "loss"])
            name, target = train.until or ("", 0.0)
            if math.isnan(target) or (name == "accuracy" and not 0 <= target <= 1):
                raise UsageError(
                    f"{name}={target:g} cannot be reached; an accuracy is between 0 and 1, for "
                    "example accuracy=0.98"
                )
            return replace(config, train=train)

    def limits(self) -> dict[str, Any]:
        """Return the given settings that end a run, for :class:`snopt.lab.train.TrainConfig`."""
        limits: dict[str, Any] = {}
        if self.iterations is not None or self.epochs is not None:
            limits = {"iterations": self.iterations, "epochs": self.epochs}
        if self.max_seconds is not None:
            limits["max_seconds"] = self.max_seconds
        if self.until is not None:
            name, _, text = self.until.partition("=")
            try:
                limits["until"] = (name, float(text))
            except ValueError as error:
                raise UsageError(
                    f"--until {self.until}: {text!r} is not a number; write for example "
                    "accuracy=0.98"
                ) from error
        return limits

    def listeners(self, folder: Path, *, tensorboard: bool = False) -> list[Listener]:
        """Return the listeners of a run."""
        found = progress("quiet" if self.quiet else "auto")
        return [*found, TensorBoard(folder / "tensorboard")] if tensorboard else found

    def watch(self, title: Callable[[Run], str]) -> Watch:
        """Return a function that prints the title of a run and returns its listeners."""

        def start(run: Run) -> list[Listener]:
            if not self.quiet:
                print(f"--- {title(run)}")
            return self.listeners(run.folder)

        return start


DEFAULTS = RunOptions()
