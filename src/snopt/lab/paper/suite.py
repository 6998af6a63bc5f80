"""Run an item of the paper: what is missing of its records, then its table and figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from snopt.lab.config import Scale
from snopt.lab.paper.item import Item, Result, Space, Watch
from snopt.lab.paper.queue import jobs_of, work
from snopt.lab.train.folder import write_json

__all__ = ["draw_result", "result_markdown", "run_item", "state"]


def run_item(item: Item, space: Space, *, watch: Watch, tell: Callable[[str], None]) -> Result:
    """Do what an item still needs, and write its result.

    Args:
        item: the item.
        space: where the records are.
        watch: makes the listeners of a run.
        tell: told a sentence about every job.
    """
    work([item], space, watch=watch, tell=tell)
    result = item.result(space)
    write_result(item, space, result)
    return result


def write_result(item: Item, space: Space, result: Result) -> None:
    """Write ``result.json``, ``table.md`` and, if the item has one, ``figure.png``."""
    folder = space.output(item.id)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", {"item": item.id, "scale": space.scale, **asdict(result)})
    (folder / "table.md").write_text(result_markdown(item, space.scale, result), encoding="utf-8")
    draw_result(item, result, folder / "figure.png")


def result_markdown(item: Item, scale: Scale, result: Result) -> str:
    """Write an item's tables and notes, with the command that repeats them."""
    names = ", ".join(f"`{label}`" for label in item.labels)
    origin = f"The paper's {names}" if names else "Beyond the paper"
    parts = [f"## {item.title}", f"{origin}. `snopt paper {item.id} --scale {scale}`"]
    for table in result.tables:
        parts += [table.caption, table.markdown()]
    if result.notes:
        parts.append("\n".join(f"- {note}" for note in result.notes))
    return "\n\n".join(parts) + "\n"


def draw_result(item: Item, result: Result, path: Path) -> None:
    """Draw an item's figure, if it has one."""
    if item.draw is None:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'snopt[lab]'") from error
    figure = Figure(layout="constrained")
    item.draw(figure, result)
    figure.savefig(path, dpi=120)


def state(item: Item, space: Space) -> str:
    """Say how far an item is: "not begun", "3 of 12" or "done"."""
    jobs = jobs_of([item], space)
    done = sum(job.done() for job in jobs)
    if done == len(jobs) and (space.output(item.id) / "result.json").exists():
        return "done"
    return f"{done} of {len(jobs)}" if done else "not begun"
