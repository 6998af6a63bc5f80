"""Run one experiment or several, and read their run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from torch import nn

from snopt.lab.config import Experiment
from snopt.lab.data import Spec
from snopt.lab.optimizers import unused_settings
from snopt.lab.recipes.build import build, build_model, build_task
from snopt.lab.recipes.settings import from_dict
from snopt.lab.report.read import ENDED_WELL, read_run
from snopt.lab.report.records import number
from snopt.lab.train import Listener, Outcome, RunFolderError, join, load_checkpoint, train
from snopt.lab.train.folder import read_config

Anything = TypeVar("Anything")

COMPLETE = (*ENDED_WELL, "diverged")
"""Statuses of a run that is not resumed."""


@dataclass(frozen=True)
class Run:
    """An experiment and its run folder."""

    config: Experiment
    folder: Path

    @property
    def label(self) -> str:
        """Name of the run on the terminal."""
        return f"{self.config.optimizer.name}, seed {self.config.train.seed}"

    def finish(self, watch: Watch = lambda _: (), *, pictures: bool = True) -> Outcome:
        """Return the recorded outcome, or start or resume the run."""
        config, folder = self.config, self.folder
        return recorded(config, folder) or run(
            config, folder, resume=True, pictures=pictures, listeners=watch(self)
        )


Watch: TypeAlias = Callable[[Run], Sequence[Listener]]
"""Creates the listeners of a run."""


def seeded(configs: Sequence[Experiment], seeds: int) -> list[tuple[int, Experiment]]:
    """Return experiments with several seeds in the order to run them, each with its index.

    Seeds are the outer loop, and each starts with another experiment, so that a machine that is
    slow for a while slows all experiments alike. Seeds count from the experiments' own.
    """

    def reseeded(config: Experiment, k: int) -> Experiment:
        return replace(config, train=replace(config.train, seed=config.train.seed + k))

    places = range(len(configs))
    return [(i, reseeded(configs[i], k)) for k in range(seeds) for i in rotated(places, k)]


def rotated(items: Sequence[Anything], turn: int) -> list[Anything]:
    """Return the items, starting with another one at each turn.

    Example:
        >>> rotated("abc", 1), rotated("abc", 3)
        (['b', 'c', 'a'], ['a', 'b', 'c'])
    """
    start = turn % len(items)
    return [*items[start:], *items[:start]]


def schedule(configs: Sequence[Experiment], seeds: int, out: str | Path) -> list[Run]:
    """Return the runs of a comparison in order (see :func:`seeded`).

    Args:
        configs: one experiment per optimizer.
        seeds: number of seeds, counted from the experiments' own.
        out: parent of the run folders, ``out/<task>/<optimizer>-seed<k>``.

    Example:
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> runs = schedule([recipe("digits", "snopt"), recipe("digits", "adam")], 2, "out")
        >>> [run.label for run in runs]
        ['snopt, seed 0', 'adam, seed 0', 'adam, seed 1', 'snopt, seed 1']
    """
    return [
        Run(each, Path(out) / each.task / f"{each.optimizer.name}-seed{each.train.seed}")
        for _, each in seeded(configs, seeds)
    ]


def compare(runs: Iterable[Run], *, watch: Watch = lambda _: ()) -> list[tuple[Run, Outcome]]:
    """Run a comparison: resume runs that were stopped, and read those that are complete.

    Args:
        runs: from :func:`schedule`.
        watch: makes the listeners of each run.

    Returns:
        Each run with its outcome. The list ends early if a run was interrupted.
    """
    done = []
    for each in runs:
        done.append((each, each.finish(watch)))
        if done[-1][1].status == "interrupted":
            break
    return done


def troubles(done: Sequence[tuple[Run, Outcome]]) -> list[str]:
    """Return one line per run that diverged or was interrupted."""
    return [
        f"{run.label}: {outcome.status}"
        for run, outcome in done
        if outcome.status in ("diverged", "interrupted")
    ]


def run(
    config: Experiment,
    folder: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    pictures: bool = True,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train what a configuration describes, on a GPU if there is one, on all processes of torchrun.

    Args:
        config: the experiment.
        folder: the run folder.
        resume: resume the run in the folder.
        overwrite: delete the run in the folder and start again.
        pictures: let the task draw its model at the end, for the report.
        listeners: receive every record.
    """
    with join() as world:
        task, parts = build(config, world.device)
        if not pictures:
            task.picture = None  # type: ignore[assignment, method-assign]
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
    """Return the entries of ``config.json`` about an experiment."""
    return {
        "task": config.task,
        "optimizer": config.optimizer.name,
        "seed": config.train.seed,
        "experiment": asdict(config),
    }


def experiment_of(folder: str | Path) -> Experiment:
    """Read the experiment of a run folder that :func:`run` has written.

    Raises:
        RunFolderError: If there is no run in the folder, or its ``config.json`` is damaged.
    """
    content = read_config(Path(folder))
    path = Path(folder) / "config.json"
    if not isinstance(content.get("experiment"), dict):
        raise RunFolderError(f"{path} was not written by `snopt train`: it has no experiment.")
    try:
        config = from_dict(Experiment, content["experiment"])
        # Defaults change between versions; settings that the optimizer does not have do not matter.
        unused = unused_settings(config.optimizer)
    except (ValueError, TypeError, AttributeError) as error:
        raise RunFolderError(
            f"{path} does not describe an experiment of this version: {error}"
        ) from error
    return replace(config, optimizer=replace(config.optimizer, **unused))


@dataclass(frozen=True)
class Loaded:
    """A trained model.

    Attributes:
        model: the model, in evaluation mode and on the CPU.
        iteration: number of updates made.
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
        folder: the run folder.
        model: a model to load the weights into. It is needed for runs of your own tasks; the model
            of :func:`run` and ``snopt train`` is built from the run folder.
        latest: load the latest checkpoint instead, as for a run without validation.

    Raises:
        RunFolderError: If the folder holds no model, or one that does not fit.

    Example:
        >>> import tempfile, torch
        >>> from snopt.lab.recipes.catalogue import recipe
        >>> folder = tempfile.mkdtemp()
        >>> outcome = run(recipe("two_moons", "adam", "smoke"), folder)
        >>> loaded = load(folder)
        >>> loaded.metrics["accuracy"] == outcome.best, loaded.model(torch.zeros(1, 2)).shape
        (True, torch.Size([1, 2]))
    """
    folder = Path(folder)
    config = read_config(folder)
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
    """Build the untrained model of an experiment."""
    if "experiment" not in config:
        raise RunFolderError(
            f"{folder} does not say how its model was built; build it and pass it: "
            "load(folder, model)."
        )
    experiment = experiment_of(folder)
    spec = config.get("spec")
    # Runs of earlier versions did not record the spec of their data.
    found = from_dict(Spec, spec) if spec else build_task(experiment).train.spec
    return build_model(experiment.model, experiment.solver, found)


def recorded(config: Experiment, folder: str | Path) -> Outcome | None:
    """Read the outcome of an experiment from its run folder.

    Returns:
        The outcome; None if the run has not ended, or can be resumed.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        return None
    if experiment_of(folder) != config:
        raise RunFolderError(
            f"{folder} holds a run with other settings; choose another --out, or remove it."
        )
    records = read_run(folder).records
    end = records.end or {}
    iteration, seconds = number(end.get("iteration")), number(end.get("seconds"))
    if end.get("status") not in COMPLETE or iteration is None or seconds is None:
        return None  # If the record is damaged, the checkpoint may not be.
    known = records.split("valid").table(config.metric)[:, 2].tolist()
    best = (max if config.mode == "max" else min)(known, default=None)
    last, told = records.final, "already recorded"
    return Outcome(end["status"], int(iteration), seconds, best, last, folder, told)
