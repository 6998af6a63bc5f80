"""Options shared by the commands that train, and the error for a wrong command line."""

from __future__ import annotations

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
from snopt.lab.train import Listener, TensorBoard, progress

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


def check(config: Experiment) -> None:
    """Refuse settings that have no effect or are not accepted, before data are read.

    Solver, optimizer and horizon are built for a small stand-in of the model.
    """
    kind = config.model.kind
    changed = {f.name for f in fields(ModelConfig) if getattr(config.model, f.name) != f.default}
    ignored = [f"model.{name}" for name in changed - {"kind", *USED.get(kind, changed)}]
    if kind == "series" and config.solver.horizon != SolverConfig.horizon:
        ignored.append("solver.horizon")
    if ignored:
        raise UsageError(f"{', '.join(sorted(ignored))}: no effect on a model of kind {kind!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block = NeuralODE(nn.Linear(2, 2), **solver_options(config.solver))
        with suppress(ImportError):  # Reported when the run starts.
            made = make_optimizers(nn.Sequential(block, nn.Linear(2, 2)), config.optimizer)
            make_schedulers(made, config.optimizer)
        if config.horizon.policy != "fixed":
            HorizonOptimizer(block, **asdict(config.horizon))


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
            config = self.limited(with_settings(config, self.set))
            check(config)
            return config

    def limited(self, config: Experiment) -> Experiment:
        """Change when an experiment ends."""
        with usage():
            train = replace(config.train, **self.limits())
            if train.until is not None and train.until[0] not in (config.metric, "loss"):
                raise unknown(f"metric of {config.task}", train.until[0], [config.metric, "loss"])
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
