"""The two kinds of jobs: a training, which resumes, and a measurement, which starts over.

A record carries a stamp of its settings and of the code that made it. A record with another stamp
is stale: it is moved aside, and the job is done again.
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
from snopt.lab.paper.version import COMPILED, LIBRARY, TRAINING, code_of, stamp
from snopt.lab.recipes.build import build, build_task
from snopt.lab.recipes.run import Run, Watch, load, recorded
from snopt.lab.train import TrainConfig
from snopt.lab.train.folder import FolderLock, write_json
from snopt.lab.train.step import evaluate

__all__ = ["Job", "Measurement", "Training", "failure", "read_json"]

BEST = "best.json"
FAILED = "failed.json"
MEASURED = "measured.json"
STAMP = "stamp.json"
STALE = "stale"

_done: set[tuple[Path, str, str]] = set()
"""Jobs that this process has found done, so that their records need not be read again."""


class Job:
    """Something to compute once, and its record.

    Attributes:
        folder: where the record goes; jobs with the same folder are the same.
        ready: False until other jobs have decided what it is.
    """

    folder: Path
    ready: bool = True

    @property
    def label(self) -> str:
        """Name on the screen."""
        return f"{self.folder.parent.name}: {self.folder.name}"

    @property
    def size(self) -> float:
        """Length, in units of its kind."""
        return 1.0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of jobs that take about as long, the most similar first."""
        raise NotImplementedError

    @property
    def stamp(self) -> dict[str, str]:
        """The stamp that a current record has."""
        raise NotImplementedError

    def complete(self) -> bool:
        """Return whether the record is complete, whatever its stamp."""
        raise NotImplementedError

    def do(self, watch: Watch) -> None:
        """Compute it, or continue where an earlier process stopped."""
        raise NotImplementedError

    def done(self) -> bool:
        """Return whether the record is complete and current."""
        wanted = self.stamp
        key = (self.folder, wanted["code"], wanted["settings"])
        if key not in _done and self.current() and self.complete():
            _done.add(key)
        return key in _done

    def current(self) -> bool:
        """Return whether this code with these settings made what is in the folder."""
        kept = read_json(self.folder / STAMP)
        return {name: kept.get(name) for name in self.stamp} == self.stamp

    def spent(self) -> float | None:
        """Return the seconds that the record took; None if unknown."""
        return read_json(self.folder / STAMP).get("seconds")

    def prepare(self) -> None:
        """Move a stale record into the folder ``stale``, and stamp the new one.

        Raises:
            FolderInUse: another process works on it.
        """
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
        """Add the elapsed seconds to those of the record."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            seconds = (self.spent() or 0.0) + time.perf_counter() - begun
            write_json(self.folder / STAMP, {**self.stamp, "seconds": round(seconds, 3)})


@dataclass(frozen=True)
class Training(Job):
    """One run of an experiment.

    Attributes:
        config: the experiment.
        folder: the run folder.
        ready: False until its learning rate is chosen; ``config`` is a guess until then.
    """

    config: Experiment
    folder: Path
    ready: bool = True

    @property
    def stamp(self) -> dict[str, str]:  # noqa: D102
        return stamp(self.config, code_of(self.config))

    @property
    def size(self) -> float:  # noqa: D102
        return float(self.config.train.iterations or 1)

    @property
    def kinds(self) -> tuple[str, ...]:  # noqa: D102
        config = self.config
        return f"{config.task}, {config.optimizer.name}", config.task, config.model.kind

    def done(self) -> bool:
        """Return whether the run has ended, successfully or not."""
        return self.ready and super().done()

    def complete(self) -> bool:  # noqa: D102
        ended = failure(self.folder) is not None or recorded(self.config, self.folder) is not None
        return ended and (bool(self.best()) or not self._tests_best)

    @property
    def _tests_best(self) -> bool:
        tested = self.config.scale == "cpu" and self.config.data.test_examples != 0
        return tested and failure(self.folder) is None

    def best(self) -> dict[str, Any]:
        """Return the test metrics of the best model by validation; none if it was not tested."""
        return read_json(self.folder / BEST)

    def do(self, watch: Watch) -> None:
        """Train, or resume the training; at scale ``cpu``, test the best model by validation.

        A failed solve ends the run and is recorded as its outcome with the reason: a learning rate
        that makes the flow too stiff is a property of the optimizer.
        """
        self.prepare()
        if self.config.solver.compile:
            # One compilation serves all rates, lengths and seeds.
            train = TrainConfig(iterations=1, batch_size=self.config.train.batch_size)
            optimizer = replace(self.config.optimizer, lr=0.1, cosine=None)
            warm_up(replace(self.config, optimizer=optimizer, train=train))
        with self.timed():
            try:
                # Without pictures: that of a density takes longer than a short run.
                outcome = Run(self.config, self.folder).finish(watch, pictures=False)
            except SolveError as error:
                write_json(self.folder / FAILED, {"reason": str(error)})
                return
            if outcome.status == "interrupted":
                raise KeyboardInterrupt
            if self._tests_best:
                write_json(self.folder / BEST, self._test_best())

    def _test_best(self) -> dict[str, float]:
        task, model, train = build_task(self.config), load(self.folder).model, self.config.train
        assert task.test is not None
        size = train.eval_batch_size
        return dict(evaluate(task, model, task.test, batch_size=size, seed=train.seed))


@cache
def warm_up(config: Experiment) -> None:
    """Compile what a run needs, so that no run's seconds contain the compilation."""
    task, parts = build(config)
    batch = task.train.batch(torch.arange(min(config.train.batch_size, len(task.train))))
    task.loss(parts.model, batch).backward()
    with torch.no_grad():
        task.metrics(parts.model.eval(), batch)


def failure(folder: Path) -> str | None:
    """Return why a run failed; None if it succeeded or has not ended."""
    return read_json(folder / FAILED).get("reason")


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; nothing if it is missing or damaged."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


@dataclass(frozen=True)
class Measurement(Job):
    """Something measured in one go.

    Attributes:
        folder: where the record goes.
        measure: returns what is recorded: numbers, strings, lists and dictionaries.
        settings: what it depends on beside the code.
        code: files and folders of the package that it depends on; by default all that can matter.
    """

    folder: Path
    measure: Callable[[], dict[str, Any]]
    settings: object = None
    code: tuple[str, ...] = (*LIBRARY, *COMPILED, *TRAINING, "lab/optimizers")

    @property
    def stamp(self) -> dict[str, str]:  # noqa: D102
        return stamp(self.settings, self.code)

    @property
    def kinds(self) -> tuple[str, ...]:  # noqa: D102
        return (self.folder.name.partition("-")[0],)

    def complete(self) -> bool:  # noqa: D102
        return (self.folder / MEASURED).exists()

    def read(self) -> dict[str, Any]:
        """Return what was measured."""
        return read_json(self.folder / MEASURED)

    def do(self, watch: Watch) -> None:
        """Measure, unless another process has done it meanwhile."""
        self.prepare()
        with FolderLock(self.folder), self.timed():
            if not self.done():
                write_json(self.folder / MEASURED, self.measure())
