"""Run an item of the paper: what is missing of its records, then its table and figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from snopt.lab.paper.item import Item, Job, Result, Space, Watch
from snopt.lab.paper.markdown import result_markdown
from snopt.lab.train import FolderInUse
from snopt.lab.train.folder import write_json

__all__ = ["State", "run_item", "state", "write_result"]

PATIENCE = 5.0
"""Seconds between two looks at jobs that other processes are at."""


def run_item(item: Item, space: Space, *, watch: Watch, tell: Callable[[str], None]) -> Result:
    """Do what an item still needs, and write its result.

    Several processes may work at the same item: each takes jobs that no other is at.

    Args:
        item: the item.
        space: where the records are.
        watch: makes the listeners of a run.
        tell: told a sentence about every job.
    """
    while waiting := pending(item, space):
        busy = 0
        for job in waiting:
            if job.done():
                continue
            tell(job.label)
            try:
                job.do(watch)
            except FolderInUse:
                busy += 1
        if busy == len(waiting):
            time.sleep(PATIENCE)
    result = item.result(space)
    write_result(item, space, result)
    return result


def pending(item: Item, space: Space) -> list[Job]:
    """List an item's jobs that are not done, as far as the records tell."""
    return [job for job in item.jobs(space) if not job.done()]


def write_result(item: Item, space: Space, result: Result) -> Path:
    """Write ``result.json``, ``table.md`` and, if the item has one, ``figure.png``.

    Returns:
        The folder they are in.
    """
    folder = space.output(item.id)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", {"item": item.id, "scale": space.scale, **asdict(result)})
    (folder / "table.md").write_text(result_markdown(item, space.scale, result), encoding="utf-8")
    draw_result(item, result, folder / "figure.png")
    return folder


def draw_result(item: Item, result: Result, path: Path) -> None:
    """Draw an item's figure, if it has one."""
    if item.draw is None:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'snopt[report]'") from error
    figure = Figure(layout="constrained")
    item.draw(figure, result)
    figure.savefig(path, dpi=120)


@dataclass(frozen=True)
class State:
    """How far an item is.

    Attributes:
        done: jobs that are complete.
        known: jobs that are known so far; tuning may lead to more.
        written: whether a result has been written.
    """

    done: int
    known: int
    written: bool

    def __str__(self) -> str:
        if self.written and self.done == self.known:
            return "done"
        return f"{self.done} of {self.known}" if self.done else "not begun"


def state(item: Item, space: Space) -> State:
    """Tell how far an item is at a scale."""
    jobs = item.jobs(space)
    written = (space.output(item.id) / "result.json").exists()
    return State(sum(job.done() for job in jobs), len(jobs), written)
