"""The table of the race: one row a task and method, from the records of its runs.

A loss is the mean of the training loss over a tenth of the budget. The rate of a method is the one
with the lowest validation loss at the end, averaged over seeds; all columns but *worst* are of that
rate. The rivals' best is the lowest final loss of all other methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from snopt.lab.paper.curves import cpu_table
from snopt.lab.paper.jobs import Training
from snopt.lab.report.read import ENDED_WELL, Run, read_run
from snopt.lab.table import cell_text, markdown

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
SMOOTH = 0.1
"""The part of the budget that a loss is averaged over."""


@dataclass(frozen=True)
class Entry:
    """One run of the race."""

    split: str
    task: str
    method: str
    job: Training

    @cached_property
    def run(self) -> Run:
        """The record of the run."""
        return read_run(self.job.folder)

    @cached_property
    def curve(self) -> Any:
        """Rows (updates, CPU seconds, mean loss over the last tenth of the budget)."""
        table, train = cpu_table(self.run, "training", "loss"), self.job.config.train
        updates, seconds = train.iterations, train.max_cpu_seconds
        used = table[:, 0] / updates if updates else table[:, 1] / seconds
        first, sums = np.searchsorted(used, used - SMOOTH, "right"), np.cumsum([0, *table[:, 2]])
        table[:, 2] = (sums[1:] - sums[first]) / (np.arange(len(table)) + 1 - first)
        return table

    @property
    def final_loss(self) -> float:
        """The loss at the end; infinite if the run did not get there."""
        well = self.run.state in ENDED_WELL and len(self.curve) > 0
        return float(self.curve[-1, 2]) if well else math.inf

    @property
    def valid_loss(self) -> float:
        """The validation loss at the end; infinite if the run did not get there."""
        final = self.run.records.final if self.run.state in ENDED_WELL else {}
        return final.get("valid", {}).get("loss", math.inf)

    @property
    def evaluations(self) -> float:
        """Evaluations of the field an update."""
        counts = (self.run.records.steps.table(f"nfe_{way}") for way in ("forward", "backward"))
        return sum(float(table[:, 2].mean()) for table in counts if len(table))


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Sort items into groups, in the order in which they first appear."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def final_loss(entries: Iterable[Entry]) -> float:
    """The loss at the end, over seeds."""
    return fmean(entry.final_loss for entry in entries)


def standings(entries: Iterable[Entry]) -> str:
    """Tabulate everything."""
    header = [
        "task", "method", "rate", "seeds", "final loss", "worst over rates", "valid or test metric",
        "CPU s to rivals' best", "updates to it", "CPU s", "updates", "evaluations an update",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for task, runs in grouped(entries, lambda e: e.task).items():
        methods = grouped(runs, lambda e: e.method)
        rates = {m: grouped(of, lambda e: e.job.config.optimizer.lr) for m, of in methods.items()}
        best = {
            method: min(of, key=lambda lr: fmean(entry.valid_loss for entry in of[lr]))
            for method, of in rates.items()
        }
        final = {method: final_loss(rates[method][lr]) for method, lr in best.items()}
        for method, lr in best.items():
            rivals = [loss for other, loss in final.items() if other != method]
            worst = max(map(final_loss, rates[method].values()))
            chosen = rates[method][lr]
            ends = [entry.curve[-1] for entry in chosen if len(entry.curve)]
            rows.append(
                [f"{task} ({chosen[0].split})", f"`{method}`", f"{lr:g}"]
                + [str(len(chosen)), number(final[method]), number(worst), metric(chosen)]
                + first_at(chosen, min(rivals, default=-math.inf))
                + [number(fmean(end[i] for end in ends)) if ends else "–" for i in (1, 0)]
                + [number(fmean(entry.evaluations for entry in chosen))]
            )
    return markdown(header, rows)


def number(value: float) -> str:
    """Write a number to three digits."""
    return "diverged" if math.isinf(value) else cell_text(value)


def metric(entries: Sequence[Entry]) -> str:
    """The metric of the test examples, or of those for validation where tests are not touched."""
    part = "test" if entries[0].split == "report" else "valid"
    finals = [entry.run.records.final.get(part, {}) for entry in entries]
    values = [found.get(entries[0].job.config.metric) for found in finals]
    return "–" if None in values else f"{fmean(values):.4g} ({part})"


def first_at(entries: Sequence[Entry], target: float) -> list[str]:
    """Seconds and updates to a target, over seeds; or how many seeds got there, if not all."""
    there = [entry.curve[entry.curve[:, 2] <= target] for entry in entries]
    found = [rows[0] for rows in there if len(rows)]
    if len(found) < len(entries):
        return [f"{len(found)} of {len(entries)}" if found else "–", "–"]
    return [number(fmean(place[i] for place in found)) for i in (1, 0)]
