"""``python -m tests.lab.paper.fake_queue ROOT``: work at a queue of small fake items.

Each measurement leaves a line in ``ROOT/log`` when it begins and when it is done.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

from snopt.lab.paper.item import Item, Result, Space
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.queue import work

COUNT = 6


def log(root: Path, text: str) -> None:
    """Append a line at once, so that a killed process has left all or nothing of it."""
    handle = os.open(root / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def measure(root: Path, name: str, seconds: float) -> dict:
    log(root, f"begin {name}")
    time.sleep(seconds)
    log(root, f"done {name}")
    return {"name": name}


def fake_item(root: Path, seconds: float = 0.0, settings: object = None) -> Item:
    """Two stages: the second is known when the first is done."""

    def jobs(space: Space) -> list[Measurement]:
        def made(stage: str) -> list[Measurement]:
            names = [f"{stage}-{k}" for k in range(COUNT // 2)]
            return [
                Measurement(space.measurement(n), partial(measure, root, n, seconds), settings)
                for n in names
            ]

        first = made("first")
        return [*first, *(made("second") if all(job.done() for job in first) else [])]

    return Item("fake", (), "Fake", jobs, lambda space: Result([]))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    item = fake_item(root, seconds=0.3)
    work([item], Space(root, "smoke"), watch=lambda folder: (), tell=lambda label: None)
