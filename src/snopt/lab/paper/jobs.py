"""The two kinds of jobs: a training, which resumes, and a measurement, which starts over.

A record carries a stamp of its settings and of the code that made it. One with another stamp is
stale: it is set aside, and the job is done again.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from snopt.base.errors import SolveError
from snopt.lab.config import Experiment
from snopt.lab.paper.item import Watch
from snopt.lab.paper.version import stamp
from snopt.lab.recipes.build import build
from snopt.lab.recipes.run import Run, recorded
from snopt.lab.train.folder import FolderLock, write_json

__all__ = ["Measurement", "Training", "failure"]

FAILED = "failed.json"
MEASURED = "measured.json"
STAMP = "stamp.json"
STALE = "stale"

_done: set[tuple[Path, str, str]] = set()
"""Jobs that this process has found done, so that their records need not be read again."""


class _Stamped:
    """A folder with a stamp, and the seconds spent on what is in it."""

    folder: Path

    @property
    def settings(self) -> object:
        """Everything that the record depends on but the code."""
        raise NotImplementedError

    def complete(self) -> bool:
        """Tell whether the record is all there, whoever made it."""
        raise NotImplementedError

    @property
    def stamp(self) -> dict[str, str]:
        """What the record must carry."""
        return stamp(self.settings)

    def done(self) -> bool:
        """Tell whether its record is complete, and made by this code with these settings."""
        key = (self.folder, self.stamp["code"], self.stamp["settings"])
        if key not in _done and self.current() and self.complete():
            _done.add(key)
        return key in _done

    def current(self) -> bool:
        """Tell whether what is in the folder was made by this code with these settings."""
        kept = self._kept()
        return {name: kept.get(name) for name in self.stamp} == self.stamp

    def spent(self) -> float | None:
        """Return the seconds that the record took; None if it is not known."""
        found = self._kept().get("seconds")
        return float(found) if found else None

    def _kept(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / STAMP).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def prepare(self) -> None:
        """Set a stale record aside, into the folder ``stale``, and stamp the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FolderLock(self.folder):
            if self.current():
                return
            aside = self.folder / STALE
            shutil.rmtree(aside, ignore_errors=True)
            for path in [p for p in self.folder.iterdir() if p.name != "lock"]:
                aside.mkdir(exist_ok=True)
                os.replace(path, aside / path.name)
            write_json(self.folder / STAMP, self.stamp)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds that pass to those spent on the record."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            seconds = (self.spent() or 0.0) + time.perf_counter() - begun
            write_json(self.folder / STAMP, {**self.stamp, "seconds": round(seconds, 3)})


@dataclass(frozen=True)
class Training(_Stamped, Run):
    """One run of an experiment.

    Attributes:
        ready: False while its learning rate is still to be chosen: ``config`` is then a guess.
    """

    ready: bool = True

    @property
    def settings(self) -> object:  # noqa: D102
        return self.config

    @property
    def label(self) -> str:
        """What to call it on the screen."""
        return f"{self.config.task}: {self.folder.name}"

    @property
    def size(self) -> float:
        """How long it is, in units of its kind."""
        return float(self.config.train.iterations or 1)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What else is likely to take as long, from the most alike to the least."""
        config = self.config
        return f"{config.task}, {config.optimizer.name}", config.task, config.model.kind

    def done(self) -> bool:
        """Tell whether the run has ended, well or not."""
        return self.ready and super().done()

    def complete(self) -> bool:  # noqa: D102
        return failure(self.folder) is not None or recorded(self.config, self.folder) is not None

    def do(self, watch: Watch) -> None:
        """Train, or go on with the training.

        A solve that cannot be finished ends the run, and is its outcome: a learning rate that
        makes the flow too stiff is a fact about the optimizer. It is recorded with its reason.
        """
        self.prepare()
        if self.config.solver.compile:
            warm_up(replace(self.config, train=replace(self.config.train, seed=0)))
        with self.timed():
            try:
                outcome = self.finish(lambda run: watch(run.folder))
            except SolveError as error:
                write_json(self.folder / FAILED, {"reason": str(error)})
                return
        if outcome.status == "interrupted":
            raise KeyboardInterrupt


@cache
def warm_up(config: Experiment) -> None:
    """Compile what a run will need, so that compiling is in no run's seconds."""
    task, parts = build(config)
    batch = task.train.batch(torch.arange(min(config.train.batch_size, len(task.train))))
    task.loss(parts.model, batch).backward()
    with torch.no_grad():
        task.metrics(parts.model.eval(), batch)


def failure(folder: Path) -> str | None:
    """Return why a run could not be finished; None if it could, or has not ended."""
    path = folder / FAILED
    return str(json.loads(path.read_text("utf-8"))["reason"]) if path.exists() else None


@dataclass(frozen=True)
class Measurement(_Stamped):
    """Something measured in one go.

    Attributes:
        folder: where its record goes.
        measure: returns what is to be recorded: numbers, strings, lists and dictionaries.
        settings: what it depends on beside the code.
    """

    folder: Path
    measure: Callable[[], dict[str, Any]]
    settings: object = None
    ready = True
    size = 1.0

    @property
    def label(self) -> str:
        """What to call it on the screen."""
        return f"measure {self.folder.name}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """What else is likely to take as long."""
        return (self.folder.name.partition("-")[0],)

    def complete(self) -> bool:  # noqa: D102
        return (self.folder / MEASURED).exists()

    def read(self) -> dict[str, Any]:
        """Return what was measured."""
        found: dict[str, Any] = json.loads((self.folder / MEASURED).read_text("utf-8"))
        return found

    def do(self, watch: Watch) -> None:
        """Measure; another process that is at it is left alone."""
        self.prepare()
        with FolderLock(self.folder), self.timed():
            if not self.done():
                write_json(self.folder / MEASURED, self.measure())
