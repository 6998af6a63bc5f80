"""One experiment, from its configuration to its run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

from snopt.lab.config import Experiment
from snopt.lab.data import Spec
from snopt.lab.optimizers import unused_settings
from snopt.lab.recipes.build import build, build_model, build_task
from snopt.lab.recipes.settings import from_dict
from snopt.lab.report.read import read_run
from snopt.lab.report.records import number
from snopt.lab.train import Listener, Outcome, RunFolderError, join, load_checkpoint, train

__all__ = [
    "Loaded",
    "Run",
    "Watch",
    "describe",
    "evaluations",
    "experiment_of",
    "lengthened",
    "load",
    "recorded",
    "rotated",
    "run",
    "seeded",
]

Anything = TypeVar("Anything")

COMPLETE = ("finished", "target", "budget", "plateau", "diverged")
"""How a run can have ended that there is nothing to resume of."""


@dataclass(frozen=True)
class Run:
    """One run of an experiment, done or to be done.

    Attributes:
        config: what is run.
        folder: where its record goes.
    """

    config: Experiment
    folder: Path

    @property
    def label(self) -> str:
        """What to call it on the screen."""
        return f"{self.config.optimizer.name}, seed {self.config.train.seed}"

    def finish(self, watch: Watch = lambda _: ()) -> Outcome:
        """Return how it ended: read from its record, or run, on from where it was stopped.

        Args:
            watch: makes the listeners, if it is run.
        """
        known = recorded(self.config, self.folder)
        return known or run(self.config, self.folder, resume=True, listeners=watch(self))


Watch: TypeAlias = Callable[[Run], Sequence[Listener]]


def seeded(configs: Sequence[Experiment], seeds: int) -> list[tuple[int, Experiment]]:
    """Put several experiments with several seeds in order: places among them, and experiments.

    Seeds are the outer loop, and each begins with another experiment: whatever slows the machine
    down for a while hits all of them alike. Seeds count from the experiments' own.
    """
    made = []
    for k in range(seeds):
        for place in rotated(range(len(configs)), k):
            train = configs[place].train
            made.append((place, replace(configs[place], train=replace(train, seed=train.seed + k))))
    return made


def rotated(items: Sequence[Anything], turn: int) -> list[Anything]:
    """Return the items, beginning with another one at each turn.

    Example:
        >>> rotated("abc", 1), rotated("abc", 3)
        (['b', 'c', 'a'], ['a', 'b', 'c'])
    """
    start = turn % len(items)
    return [*items[start:], *items[:start]]


def run(
    config: Experiment,
    folder: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train what a configuration describes, on a GPU if there is one.

    Started by torchrun, the processes share the work.

    Args:
        config: the experiment.
        folder: the run folder.
        resume: go on with the run in the folder.
        overwrite: delete the run in the folder and start anew.
        listeners: who watches.
    """
    with join("cuda" if torch.cuda.is_available() else None) as world:
        task, parts = build(config, world.device)
        return train(
            task,
            parts,
            config.train,
            folder,
            describe={**describe(config), "spec": asdict(task.train.spec)},
            resume=resume,
            overwrite=overwrite,
            listeners=listeners,
        )


def describe(config: Experiment) -> dict[str, Any]:
    """Return what a run folder says of its experiment."""
    return {
        "task": config.task,
        "optimizer": config.optimizer.name,
        "seed": config.train.seed,
        "experiment": asdict(config),
    }


def experiment_of(folder: str | Path) -> Experiment:
    """Read back the experiment of a run folder.

    Args:
        folder: a folder that :func:`run` has written to.

    Raises:
        RunFolderError: There is no run in the folder, or its ``config.json`` is damaged.
    """
    content = _config(Path(folder))
    path = Path(folder) / "config.json"
    if not isinstance(content.get("experiment"), dict):
        raise RunFolderError(f"{path} was not written by `snopt train`: it names no experiment")
    try:
        config = from_dict(Experiment, content["experiment"])
        # Defaults change between versions; settings that the optimizer does not have are moot.
        unused = unused_settings(config.optimizer)
    except (ValueError, TypeError, AttributeError) as error:
        raise RunFolderError(
            f"{path} does not describe an experiment of this version: {error}"
        ) from error
    return replace(config, optimizer=replace(config.optimizer, **unused))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunFolderError(
            f"{folder} is not a run folder: there is no config.json in it; name the folder that "
            "was given as --out"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: {error}; start the run anew") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"{path} is damaged: it is not a JSON object; start the run anew")
    return content


@dataclass(frozen=True)
class Loaded:
    """A model that was trained.

    Attributes:
        model: the model, in evaluation mode and on the CPU.
        iteration: updates that it has seen.
        metrics: its validation metrics.
        config: the run's ``config.json``.
    """

    model: nn.Module
    iteration: int
    metrics: Mapping[str, float]
    config: Mapping[str, Any]


def load(folder: str | Path, model: nn.Module | None = None, *, latest: bool = False) -> Loaded:
    """Load the model of a run: the one with the best validation metric.

    Args:
        folder: a run folder.
        model: a model to load the weights into. It is needed for a run that :func:`run` and
            ``snopt train`` did not make; theirs is built from the run folder.
        latest: load the latest checkpoint instead. A run without validation has no best model;
            the latest one is loaded then.

    Raises:
        RunFolderError: The folder holds no model, or one that does not fit.

    Example:
        >>> import tempfile
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> folder = tempfile.mkdtemp()
        >>> outcome = run(recipe("two_moons", "adam", "smoke"), folder)
        >>> loaded = load(folder)
        >>> loaded.metrics["accuracy"] == outcome.best, loaded.model(torch.zeros(1, 2)).shape
        (True, torch.Size([1, 2]))
    """
    folder = Path(folder)
    config = _config(folder)
    state = None if latest else load_checkpoint(folder, best=True)
    state = state or load_checkpoint(folder)
    if state is None:
        raise RunFolderError(f"{folder} holds no model yet: the run has made no checkpoint.")
    model = model or _rebuilt(folder, config)
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise RunFolderError(
            f"the checkpoint in {folder} does not fit the model: {error}"
        ) from error
    metrics = state.get("metrics") or state["progress"]["last"].get("valid", {})
    return Loaded(model.eval(), state["iteration"], metrics, config)


def _rebuilt(folder: Path, config: Mapping[str, Any]) -> nn.Module:
    """Build the model of an experiment as it was before training."""
    if "experiment" not in config:
        raise RunFolderError(
            f"{folder} does not say how its model was built; build it and pass it: "
            "load(folder, model)."
        )
    experiment = experiment_of(folder)
    spec = config.get("spec")
    # Runs of earlier versions did not record what their examples are.
    found = from_dict(Spec, spec) if spec else build_task(experiment).train.spec
    return build_model(experiment.model, experiment.solver, found)


def recorded(config: Experiment, folder: str | Path) -> Outcome | None:
    """Read how an experiment ended that has run before.

    Args:
        config: the experiment.
        folder: its run folder.

    Returns:
        The outcome; None if the run has not ended, or can be gone on with.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        return None
    if experiment_of(folder) != config:
        raise ValueError(
            f"{folder} holds a run with other settings; choose another --out, or remove it"
        )
    end = read_run(folder).records.end
    if end is None or end.get("status") not in COMPLETE:
        return None
    iteration, seconds = number(end.get("iteration")), number(end.get("seconds"))
    if iteration is None or seconds is None:
        return None  # The record is damaged; the checkpoint may not be.
    known = [value for *_, value in evaluations(folder, config.metric)]
    choose = max if config.mode == "max" else min
    return Outcome(
        status=end["status"],
        iteration=int(iteration),
        seconds=seconds,
        best=choose(known) if known else None,
        last=_final(end.get("final")),
        folder=folder,
        message="read from its record",
    )


def _final(final: object) -> dict[str, dict[str, float]]:
    """Return the final metrics of an end record, what is damaged left out."""
    splits = final.items() if isinstance(final, dict) else ()
    return {
        str(split): {
            str(name): value for name, value in metrics.items() if number(value) is not None
        }
        for split, metrics in splits
        if isinstance(metrics, dict)
    }


def evaluations(folder: Path, metric: str) -> list[tuple[int, float, float]]:
    """Read the validation metric of a run: iterations, seconds and values that are finite."""
    rows = read_run(folder).records.split("valid").table(metric).tolist()
    return [(int(iteration), seconds, value) for iteration, seconds, value in rows]


def lengthened(config: Experiment, iterations: int | None, epochs: int | None) -> Experiment:
    """Change how long an experiment takes; None for both leaves it as it is."""
    if iterations is None and epochs is None:
        return config
    return replace(config, train=replace(config.train, iterations=iterations, epochs=epochs))
