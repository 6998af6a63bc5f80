"""One experiment, from its configuration to its run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch

from snopt.lab.config import Experiment
from snopt.lab.optimizers import unused_settings
from snopt.lab.recipes.build import build
from snopt.lab.recipes.settings import from_dict
from snopt.lab.report.read import read_run
from snopt.lab.train import Listener, Outcome, join, train

__all__ = [
    "Run",
    "Watch",
    "describe",
    "evaluations",
    "experiment_of",
    "lengthened",
    "recorded",
    "rotated",
    "run",
    "seeded",
]

Anything = TypeVar("Anything")


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
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train what a configuration describes, on a GPU if there is one.

    Started by torchrun, the processes share the work.

    Args:
        config: the experiment.
        folder: the run folder.
        resume: go on with the run in the folder.
        listeners: who watches.
    """
    with join("cuda" if torch.cuda.is_available() else None) as world:
        task, parts = build(config, world.device)
        return train(
            task,
            parts,
            config.train,
            folder,
            describe=describe(config),
            resume=resume,
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
    """
    path = Path(folder) / "config.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} is no run folder: there is no config.json in it; name the folder that was "
            "given as --out"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; start the run anew") from error
    if "experiment" not in content:
        raise ValueError(f"{path} was not written by `snopt train`: it names no experiment")
    config = from_dict(Experiment, content["experiment"])
    # Defaults change between versions; those of settings that the optimizer does not have are moot.
    unused = unused_settings(config.optimizer)
    return replace(config, optimizer=replace(config.optimizer, **unused))


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
    if end is None or end.get("status") not in ("finished", "target", "budget", "diverged"):
        return None
    known = [value for *_, value in evaluations(folder, config.metric)]
    choose = max if config.mode == "max" else min
    return Outcome(
        status=end["status"],
        iteration=end["iteration"],
        seconds=end["seconds"],
        best=choose(known) if known else None,
        last=end.get("final", {}),
        folder=folder,
        message="read from its record",
    )


def evaluations(folder: Path, metric: str) -> list[tuple[int, float, float]]:
    """Read the validation metric of a run: iterations, seconds and values that are finite."""
    rows = read_run(folder).records.split("valid").table(metric).tolist()
    return [(int(iteration), seconds, value) for iteration, seconds, value in rows]


def lengthened(config: Experiment, iterations: int | None, epochs: int | None) -> Experiment:
    """Change how long an experiment takes; None for both leaves it as it is."""
    if iterations is None and epochs is None:
        return config
    return replace(config, train=replace(config.train, iterations=iterations, epochs=epochs))
