"""Do the jobs of items, in one process or several, and tell what is left.

There is no list of jobs on disk: what is done is told by the records, what another process is at by
the lock of its folder. A queue can therefore be killed at any time and started again; a training
goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from snopt.lab.paper.item import Item, Job, Space, Watch
from snopt.lab.train import FolderInUse

__all__ = ["Orphaned", "jobs_of", "left_text", "pending", "share", "work"]

PATIENCE = 5.0
"""Seconds between two looks at jobs that other processes are at."""
REPORT_EVERY = 60.0
"""Seconds between two reports on what is left."""
WORKER = "snopt.lab.paper.worker"


def jobs_of(items: Iterable[Item], space: Space) -> list[Job]:
    """List the jobs of some items, each once."""
    found: dict[Any, Job] = {}
    for item in items:
        for job in item.jobs(space):
            found.setdefault(job.folder, job)
    return list(found.values())


def pending(items: Iterable[Item], space: Space) -> list[Job]:
    """List the jobs that are not done, as far as the records tell."""
    return [job for job in jobs_of(items, space) if not job.done()]


def work(items: Sequence[Item], space: Space, *, watch: Watch, tell: Callable[[str], None]) -> None:
    """Do jobs until none is left; jobs that other processes are at are waited for.

    Args:
        items: whose jobs.
        space: where the records are.
        watch: makes the listeners of a run.
        tell: told the label of every job.
    """
    while waiting := pending(items, space):
        did = 0
        for job in waiting:
            if not job.ready or job.done():
                continue
            try:
                job.prepare()
                tell(job.label)
                job.do(watch)
                did += 1
            except FolderInUse:
                continue
        if not did and pending(items, space):
            time.sleep(PATIENCE)


def share(
    items: Sequence[Item], space: Space, workers: int, *, tell: Callable[[str], None]
) -> None:
    """Have several processes of one thread each do the jobs of items; return when all are done.

    If this process is interrupted, its workers save and stop; so do they if it is killed.

    Args:
        items: whose jobs.
        space: where the records are.
        workers: how many processes.
        tell: told now and then what is left.
    """
    order = {
        "root": str(space.root), "scale": space.scale, "tasks": space.tasks,
        "items": [item.id for item in items],
    }  # fmt: skip
    command = [sys.executable, "-m", WORKER, json.dumps(order)]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    tell(left_text(items, space, workers))
    begun = [subprocess.Popen(command, env={**os.environ, **threads}) for _ in range(workers)]
    told = time.monotonic()
    try:
        while any(worker.poll() is None for worker in begun):
            time.sleep(min(PATIENCE, 1.0))
            if time.monotonic() - told > REPORT_EVERY:
                told = time.monotonic()
                tell(left_text(items, space, workers))
    finally:
        for worker in begun:
            worker.terminate()  # A training saves first; one that has ended does not mind.
        codes = [worker.wait() for worker in begun]
    if any(codes):
        raise RuntimeError(
            f"a worker stopped with exit code {max(codes, key=abs)}; its message is above. Run the "
            "same command again to continue."
        )


class Orphaned:
    """A listener that stops a training, after it has saved, when the process's parent is gone."""

    def __init__(self) -> None:
        self.parent = os.getppid()

    def on_start(self, total: int | None, config: object) -> None:
        """Nothing to prepare."""

    def on_record(self, record: Mapping[str, Any]) -> None:
        """Look for the parent."""
        if os.getppid() != self.parent:
            signal.raise_signal(signal.SIGTERM)

    def on_end(self, outcome: object) -> None:
        """Nothing to finish."""


# ------------------------------------------------------------------------------- what is left


def left_text(items: Iterable[Item], space: Space, workers: int = 1) -> str:
    """Say how many jobs are left and how long they will take."""
    jobs = jobs_of(items, space)
    left = [job for job in jobs if not job.done()]
    if not left:
        return f"all {len(jobs)} jobs are done"
    known = [seconds for job in left if (seconds := _forecast(job, jobs)) is not None]
    text = f"{len(left)} of {len(jobs)} jobs left"
    if known:
        text += f", about {duration(sum(known) / workers)}"
    if len(known) < len(left):
        text += f" and {len(left) - len(known)} of unknown length" if known else ", length unknown"
    return text


def _forecast(job: Job, jobs: Sequence[Job]) -> float | None:
    """Estimate the seconds of a job by those of the most similar jobs that are done."""
    for kind in job.kinds:
        rates = [
            spent / other.size
            for other in jobs
            if kind in other.kinds and other.done() and (spent := other.spent()) is not None
        ]
        if rates:
            return statistics.fmean(rates) * job.size
    return None


def duration(seconds: float) -> str:
    """Write a time.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
