"""The two kinds of jobs: a training, which resumes, and a measurement, which starts over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from snopt.base.errors import SolveError
from snopt.lab.config import Experiment
from snopt.lab.paper.item import Watch
from snopt.lab.recipes.build import build
from snopt.lab.recipes.run import Run, recorded
from snopt.lab.train.folder import FolderLock, write_json

__all__ = ["Measurement", "Training", "failure"]

FAILED = "failed.json"
MEASURED = "measured.json"


class Training(Run):
    """One run of an experiment."""

    @property
    def label(self) -> str:
        """What to call it on the screen."""
        return f"{self.config.task}: {self.folder.name}"

    def done(self) -> bool:
        """Tell whether the run has ended, well or not."""
        return failure(self.folder) is not None or recorded(self.config, self.folder) is not None

    def do(self, watch: Watch) -> None:
        """Train, or go on with the training.

        A solve that cannot be finished ends the run, and is its outcome: a learning rate that
        makes the flow too stiff is a fact about the optimizer. It is recorded with its reason.
        """
        if self.config.solver.compile:
            warm_up(replace(self.config, train=replace(self.config.train, seed=0)))
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
class Measurement:
    """Something measured in one go.

    Attributes:
        folder: where its record goes.
        measure: returns what is to be recorded: numbers, strings, lists and dictionaries.
    """

    folder: Path
    measure: Callable[[], dict[str, Any]]

    @property
    def label(self) -> str:
        """What to call it on the screen."""
        return f"measure {self.folder.name}"

    def done(self) -> bool:
        """Tell whether it was measured."""
        return (self.folder / MEASURED).exists()

    def read(self) -> dict[str, Any]:
        """Return what was measured."""
        found: dict[str, Any] = json.loads((self.folder / MEASURED).read_text("utf-8"))
        return found

    def do(self, watch: Watch) -> None:
        """Measure; another process that is at it is left alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FolderLock(self.folder):
            if not self.done():
                write_json(self.folder / MEASURED, self.measure())
