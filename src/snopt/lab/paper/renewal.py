"""Records that other code made and this code repeats become current again.

A change of the code makes records stale, but many changes do not affect what is computed, or only
its rounding. For each kind of training one recorded run is begun again. If its losses equal the
recorded ones up to what rounding grows to, all records of the kind get a stamp of this code. Under
``earlier`` they keep the stamps they had, each with the largest relative difference. Measurements
of seconds and memory are not renewed.

How far rounding grows depends on the training: some recurrent models multiply it by ten thousand
in a few updates. So where losses are not equal, it is measured: the run is begun a few times from
weights with another last digit, and the difference may be a few times as large as the differences
between these runs up to the same update. A fixed bound would not do: one that is wide enough for
rounding lets another weight decay pass.

A change that acts after the repeated updates is not seen. Records that depend on it must be removed
before.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from snopt.lab.config import Experiment
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import STAMP, Training, failure, read_json
from snopt.lab.recipes.build import build
from snopt.lab.recipes.run import describe, experiment_of
from snopt.lab.report.read import read_run
from snopt.lab.train import join, train
from snopt.lab.train.folder import FolderLock, write_json

__all__ = ["renew"]

UPDATES = 25
"""Updates that are repeated."""
ROUNDING = 1e-5
"""Relative difference that counts as rounding before it has grown."""
NEIGHBOURS, TIMES = 3, 5.0
"""Runs from weights with another last digit, and how many times their differences are rounding."""
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
    differences = {
        step: abs(again.get(step, math.nan) / value - 1) for step, value in known.items()
    }
    bounds = dict.fromkeys(known, ROUNDING)
    if differences.get(1, 0.0) <= ROUNDING and not _within(differences, bounds):
        bounds |= _grown(job.config, again, [step for step in known if step > 1])
    for step in sorted(known):
        if not differences[step] <= bounds[step]:
            raise Stale(
                f"stale: the loss of update {step} is {again.get(step)}, recorded {known[step]}; "
                f"rounding explains a relative difference of {bounds[step]:.1g}"
            )
    return float(max(differences.values()))


def _within(differences: Mapping[int, float], bounds: Mapping[int, float]) -> bool:
    return all(value <= bounds[step] for step, value in differences.items())


def _grown(
    config: Experiment, again: Mapping[int, float], steps: Iterable[int]
) -> dict[int, float]:
    """Return the relative differences that rounding explains, by update.

    They are those of runs from weights with another last digit, ``TIMES`` as large and at least
    ``ROUNDING``. They do not shrink: two chaotic curves may cross.
    """
    others = [_begun(config, neighbour) for neighbour in range(1, NEIGHBOURS + 1)]
    found, worst = {}, 0.0
    for step in sorted(steps):
        apart = [abs(other.get(step, math.nan) / again[step] - 1) for other in others]
        worst = max(worst, *(value for value in apart if math.isfinite(value)), 0.0)
        found[step] = max(TIMES * worst, ROUNDING)
    return found


def _begun(config: Experiment, neighbour: int = 0) -> dict[int, float]:
    """Repeat the first updates of a training; return their losses.

    Args:
        config: the training.
        neighbour: seed of a change in the last digit of every weight; 0 for none.
    """
    length = min(UPDATES, config.train.iterations or UPDATES)
    short = replace(
        config,
        data=replace(config.data, test_examples=0),
        train=replace(config.train, iterations=length, evaluate_every=length),
    )
    with join() as world, tempfile.TemporaryDirectory() as folder:
        task, parts = build(short, world.device)
        task.picture = None  # type: ignore[assignment, method-assign]
        if neighbour:
            _change_last_digits(parts.model, neighbour)
        train(task, parts, short.train, folder, describe=describe(short))
        losses = read_run(Path(folder)).records.steps.table("loss")
    return {int(step): value for step, _, value in losses}


@torch.no_grad()
def _change_last_digits(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for param in model.parameters():
        up = torch.rand(param.shape, generator=generator) < 0.5
        towards = torch.where(up, math.inf, -math.inf).to(param)
        param.copy_(torch.nextafter(param, towards))


def _restamp(record: Record, difference: float) -> None:
    this = {"code": record.stamp["code"], "difference": difference}
    earlier = [*record.stamp.get("earlier", ()), this]
    folder = record.job.folder
    with FolderLock(folder):
        write_json(folder / STAMP, {**record.stamp, **record.job.stamp, "earlier": earlier})
