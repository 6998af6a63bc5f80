"""Do the jobs of items in one process or several, and report what is left.

There is no list of jobs on disk: records tell what is done, and the lock of a folder tells what
another process works on. A queue can therefore be killed at any time and started again; a training
resumes from its last checkpoint.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from snopt.lab.paper.item import Item, Result, Space
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.jobs import Job
from snopt.lab.paper.page import write_result
from snopt.lab.recipes.run import Watch
from snopt.lab.train import FolderInUse

__all__ = ["Orphaned", "jobs_of", "left_text", "pending", "run_item", "share", "state", "work"]

PATIENCE = 5.0
"""Seconds between two checks of jobs that other processes work on."""
REPORT_EVERY = 60.0
"""Seconds between two reports on what is left."""


def jobs_of(items: Iterable[Item], space: Space) -> list[Job]:
    """Return the jobs of items, each once."""
    return list({job.folder: job for item in items for job in item.jobs(space)}.values())


def pending(items: Iterable[Item], space: Space) -> list[Job]:
    """Return the jobs that are not done, as far as the records determine them."""
    return [job for job in jobs_of(items, space) if not job.done()]


def run_item(item: Item, space: Space, *, watch: Watch, tell: Callable[[str], None]) -> Result:
    """Do the jobs that an item still needs, and write its result.

    ``watch`` creates the listeners of a run; ``tell`` receives the label of every job.
    """
    work([item], space, watch=watch, tell=tell)
    result = item.result(space)
    write_result(item, space, result)
    return result


def state(item: Item, space: Space) -> str:
    """Return the progress of an item: "not started", "3 of 12" or "done"."""
    jobs = jobs_of([item], space)
    done = sum(job.done() for job in jobs)
    if done == len(jobs) and (space.output(item.id) / "result.json").exists():
        return "done"
    return f"{done} of {len(jobs)}" if done else "not started"


def work(items: Sequence[Item], space: Space, *, watch: Watch, tell: Callable[[str], None]) -> None:
    """Do jobs in their order until none is left, waiting for those that other processes work on."""
    while waiting := pending(items, space):
        # Back to the first after each: it may have decided what an earlier one is.
        if not any(_did(job, watch, tell) for job in waiting) and pending(items, space):
            time.sleep(PATIENCE)


def _did(job: Job, watch: Watch, tell: Callable[[str], None]) -> bool:
    """Do a job, and return whether it could be done: it is ready, and nobody else works on it."""
    if not job.ready or job.done():
        return False
    try:
        job.prepare()
        tell(job.label)
        job.do(watch)
    except FolderInUse:
        return False
    return True


def share(
    items: Sequence[Item], space: Space, workers: int, *, tell: Callable[[str], None]
) -> None:
    """Do the jobs of items in several processes of one thread each.

    If this process is interrupted or killed, its workers save and stop.

    ``tell`` receives a line on what is left, at the start and every minute.

    Raises:
        RuntimeError: a worker failed.
    """
    tell(left_text(items, space, workers))
    context = multiprocessing.get_context("spawn")
    order = ([item.id for item in items], space)
    begun = [context.Process(target=_worker, args=order) for _ in range(workers)]
    for worker in begun:
        worker.start()
    told = time.monotonic()
    try:
        while any(worker.is_alive() for worker in begun):
            time.sleep(min(PATIENCE, 1.0))
            if time.monotonic() - told > REPORT_EVERY:
                told = time.monotonic()
                tell(left_text(items, space, workers))
    finally:
        for worker in begun:
            worker.terminate()  # a training saves first
            worker.join()
    if codes := [worker.exitcode for worker in begun if worker.exitcode]:
        raise RuntimeError(
            f"a worker stopped with exit code {codes[0]}; its message is above. Run the same "
            "command again to continue."
        )


def _worker(ids: Sequence[str], space: Space) -> None:
    torch.set_num_threads(1)
    orphaned = Orphaned()

    def tell(label: str) -> None:
        orphaned.on_record({})  # between jobs, which may be measurements
        # One call: lines of two processes do not mix.
        sys.stdout.write(f"--- {label}\n")
        sys.stdout.flush()

    try:
        work([ITEMS[id] for id in ids], space, watch=lambda run: [orphaned], tell=tell)
    except KeyboardInterrupt:
        sys.exit(130)


class Orphaned:
    """A listener that stops a training, after it has saved, when the parent process is gone."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def on_start(self, total: int | None, config: object) -> None:
        """Do nothing."""

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Check for the parent."""
        if os.getppid() != self.parent:
            signal.raise_signal(signal.SIGTERM)

    def on_end(self, outcome: object) -> None:
        """Do nothing."""


# ------------------------------------------------------------------------------- what is left


def left_text(items: Iterable[Item], space: Space, workers: int = 1) -> str:
    """Return how many jobs are left and how long they will take."""
    jobs = jobs_of(items, space)
    left = [job for job in jobs if not job.done()]
    if not left:
        return f"all {len(jobs)} jobs are done"
    rates = _rates(jobs)
    known = [
        rates[kind] * job.size
        for job in left
        if (kind := next((kind for kind in job.kinds if kind in rates), None)) is not None
    ]
    text = f"{len(left)} of {len(jobs)} jobs left"
    if known:
        text += f", about {duration(sum(known) / workers)}"
    if len(known) < len(left):
        text += f" and {len(left) - len(known)} of unknown length" if known else ", length unknown"
    return text


def _rates(jobs: Iterable[Job]) -> dict[str, float]:
    """Return seconds per unit of size, by kind of job, from the jobs that are done."""
    found: dict[str, list[float]] = {}
    for job in jobs:
        if job.done() and (spent := job.spent()) is not None:
            for kind in job.kinds:
                found.setdefault(kind, []).append(spent / job.size)
    return {kind: statistics.fmean(values) for kind, values in found.items()}


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
