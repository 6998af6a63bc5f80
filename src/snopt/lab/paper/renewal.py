"""Records that other code made and this code repeats become current again.

A change of the code makes records stale, but many changes do not affect what is computed, or only
its rounding. For each kind of training one recorded run is begun again. If its losses equal the
recorded ones up to what rounding grows to, all records of the kind get a stamp of this code. Under
``earlier`` they keep the stamps they had, each with the largest relative difference. Measurements
of seconds and memory are not renewed.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from snopt.lab.config import Experiment
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import STAMP, Training, failure, read_json
from snopt.lab.recipes.run import experiment_of, run
from snopt.lab.report.read import read_run
from snopt.lab.train.folder import FolderLock, write_json

__all__ = ["renew"]

UPDATES = 25
"""Updates that are repeated."""
ROUNDING, GROWN = 1e-5, 5e-2
"""Relative differences that count as rounding: of the first losses, and of later ones. Rules that
divide a gradient by its size turn the last digit of a small gradient into a whole step."""
FEWEST = 3
"""Recorded losses among them that are compared at least; an archive keeps a part of all steps."""


@dataclass(frozen=True)
class Record:
    """A training whose code has changed and whose settings have not."""

    job: Training
    stamp: dict[str, Any]

    @property
    def kind(self) -> tuple[object, ...]:
        """What records have in common if one of them can stand for all."""
        config = self.job.config
        horizon = config.horizon.policy
        return (
            config.task, config.optimizer.name, config.model, config.solver, horizon,
            self.stamp["code"],
        )  # fmt: skip


def renew(space: Space, *, tell: Callable[[str], None]) -> int:
    """Renew the stamps of trainings that this code repeats; return their number.

    Args:
        space: the records, of selected data sets only if there are any.
        tell: receives a line per kind of training.
    """
    kinds: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in changed(space):
        kinds[record.kind].append(record)
    count = 0
    for records in kinds.values():
        config = records[0].job.config
        name = f"{config.task}, {config.optimizer.name}"
        try:
            difference = _difference(records)
        except Stale as reason:
            tell(f"{name}: {reason}")
            continue
        for record in records:
            _restamp(record, difference)
        count += len(records)
        tell(f"{name}: {len(records)} renewed, losses differ by {difference:.1g} at most")
    return count


class Stale(Exception):
    """Why records stay stale."""


def changed(space: Space) -> Iterable[Record]:
    """Return the trainings whose code has changed, and whose settings have not."""
    for path in sorted((space.root / space.scale / "runs").glob(f"*/*/{STAMP}")):
        folder, stamp = path.parent, read_json(path)
        if not stamp or not (folder / "config.json").exists():
            continue  # a run that is just starting
        job = Training(experiment_of(folder), folder)
        if space.tasks and job.config.task not in space.tasks:
            continue
        if stamp["settings"] == job.stamp["settings"] and stamp["code"] != job.stamp["code"]:
            yield Record(job, stamp)


def _difference(records: list[Record]) -> float:
    """Begin the longest of some trainings again; return the largest relative difference of losses.

    Raises:
        Stale: this code computes something else, or that cannot be told.
    """
    trained = [record for record in records if failure(record.job.folder) is None]
    if not trained:
        raise Stale("stale: all of its trainings failed, so that there is nothing to compare")
    job = max(trained, key=lambda record: record.job.size).job
    losses = read_run(job.folder).records.steps.table("loss")
    known = {int(step): value for step, _, value in losses if step <= UPDATES}
    if len(known) < FEWEST:
        raise Stale(f"stale: {job.label} recorded {len(known)} of the first {UPDATES} losses")
    again = _begun(job.config)
    worst = 0.0
    for step, value in known.items():
        difference = abs(again.get(step, math.nan) / value - 1)
        if not difference <= (GROWN if step > 1 else ROUNDING):
            raise Stale(f"stale: the loss of update {step} is {again.get(step)}, recorded {value}")
        worst = max(worst, difference)
    return worst


def _begun(config: Experiment) -> dict[int, float]:
    """Repeat the first updates of a training; return their losses."""
    length = min(UPDATES, config.train.iterations or UPDATES)
    short = replace(
        config,
        data=replace(config.data, test_examples=0),
        train=replace(config.train, iterations=length, evaluate_every=length),
    )
    with tempfile.TemporaryDirectory() as folder:
        run(short, folder, pictures=False)
        losses = read_run(Path(folder)).records.steps.table("loss")
    return {int(step): value for step, _, value in losses}


def _restamp(record: Record, difference: float) -> None:
    this = {"code": record.stamp["code"], "difference": difference}
    earlier = [*record.stamp.get("earlier", ()), this]
    folder = record.job.folder
    with FolderLock(folder):
        write_json(folder / STAMP, {**record.stamp, **record.job.stamp, "earlier": earlier})
