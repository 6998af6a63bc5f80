"""Results as files: one folder per item, and one page of all results of a scale."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from snopt.lab.paper import headline
from snopt.lab.paper.item import Item, Result, Space, Table
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.jobs import Training, read_json
from snopt.lab.paper.scales import TUNING_SEED
from snopt.lab.report.figures import matplotlib
from snopt.lab.train.folder import as_json, replace_text, write_json

__all__ = ["read_result", "write_page", "write_result"]

FORMAT = 2
"""Version of the JSON files; the page does not show those of another one."""
LONG = 10
"""Rows above which the page folds a table."""
HEAD = """# Results

Made by `snopt paper page --scale {scale}`; [how methods are compared, and what differs from the
paper](reproducing.md). The numbers behind tables and figures are in `{folder}/`, one file per item,
with every run of the main comparison. The paper's values were measured on a GPU, at full length, by
other code."""


def write_result(item: Item, space: Space, result: Result) -> None:
    """Write ``result.json``, ``table.md`` and, if the item has one, ``figure.png``."""
    folder = space.output(item.id)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", _content(item, space, result))
    parts = [_heading(item, space), *_tables(result.tables, result.notes)]
    (folder / "table.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    if item.draw is not None:
        save_figure(item.draw, result, folder / "figure.png")


def _content(item: Item, space: Space, result: Result) -> dict[str, Any]:
    return {"format": FORMAT, "item": item.id, "scale": space.scale, **asdict(result)}


def read_result(path: Path) -> Result | None:
    """Read a ``result.json``; None if there is none, or one of another version."""
    content = read_json(path)
    if content.get("format") != FORMAT:
        return None
    tables = [Table(**table) for table in content["tables"]]
    return Result(tables, content["notes"], content["curves"])


def write_page(space: Space, path: Path) -> Path:
    """Write the results of all items that have been run at a scale, also in part.

    The page opens with the main comparison: one table and one figure. Then each item has its
    figure, its remark and its tables, of which long ones are folded.

    Results come from the records, or else from the page's own folder, so that a page can be made
    again without them. A file ``ID.md`` in the page's folder is a remark on the item; ``page.md``
    is a remark on the whole page.

    Data and figures go to the folder of the same name beside the page, whose path is returned.
    """
    beside = path.with_suffix("")
    beside.mkdir(parents=True, exist_ok=True)
    main = {job.folder for job in ITEMS["accu"].jobs(space)}
    for item in ITEMS.values():
        if _known(item, space, main):
            content = json.dumps(as_json(_content(item, space, item.result(space))))
            replace_text(beside / f"{item.id}.json", f"{content}\n")
    parts = [HEAD.format(scale=space.scale, folder=beside.name), *_opening(space, beside)]
    parts += _remark(beside, "page")
    said: set[str] = set()
    for item in ITEMS.values():
        if item.shown and (result := read_result(beside / f"{item.id}.json")) is not None:
            parts += _section(item, result, space, beside, said)
    replace_text(path, "\n\n".join(parts) + "\n")
    return path


def _known(item: Item, space: Space, main: set[Path]) -> bool:
    """Return whether there is a result: complete, or in part of runs that are the item's own."""
    jobs = item.jobs(space)
    if all(job.done() for job in jobs):
        return True
    reported = [j for j in jobs if isinstance(j, Training) and j.config.train.seed != TUNING_SEED]
    own = [job for job in reported if job.folder not in main] or reported or jobs
    return item.partial and any(job.done() for job in own)


def _opening(space: Space, beside: Path) -> list[str]:
    """Return the main comparison at a glance."""
    main = read_result(beside / "accu.json")
    if main is None or not main.curves:
        return ["The main comparison has not been run yet."]
    compared = main.curves
    table, shares = headline.headline(compared), headline.shares(compared)
    save_figure(headline.draw, compared, beside / "headline.png")
    return [
        table.markdown(),
        table.caption,
        headline.counts(compared),
        shares.caption,
        shares.markdown(),
        *_figure("Convergence by CPU seconds", beside / "headline.png", headline.READING),
        *headline.remarks(compared, parts=space.scale == "cpu"),
    ]


def _section(item: Item, result: Result, space: Space, beside: Path, said: set[str]) -> list[str]:
    """Return an item's part of the page, without notes that were ``said`` before."""
    parts = [_heading(item, space)]
    if item.draw is not None:
        path = beside / f"{item.id}.png"
        save_figure(item.draw, result, path)
        parts += _figure(item.title, path, item.caption)
    notes = [note for note in result.notes if note not in said]
    said.update(notes)
    return [*parts, *_remark(beside, item.id), *_tables(result.tables, notes, LONG)]


def _heading(item: Item, space: Space) -> str:
    names = ", ".join(f"`{label}`" for label in item.labels)
    origin = f"The paper's {names}" if names else "Beyond the paper"
    return f"## {item.title}\n\n{origin}. `snopt paper {item.id} --scale {space.scale}`"


def _figure(title: str, path: Path, caption: str) -> list[str]:
    return [f"![{title}]({path.parent.name}/{path.name})", *([f"*{caption}*"] if caption else [])]


def _remark(beside: Path, name: str) -> list[str]:
    path = beside / f"{name}.md"
    # Links of a remark are relative to its own folder.
    return [path.read_text("utf-8").strip().replace("](../", "](")] if path.exists() else []


def _tables(tables: Iterable[Table], notes: Iterable[str], long: float = float("inf")) -> list[str]:
    """Return tables with their captions and notes; tables of more rows than ``long`` are folded."""
    parts, folded = [], False
    for table in tables:
        folded = len(table.rows) > long
        if folded:
            parts += [f'<details markdown="1"><summary>{table.caption}</summary>', table.markdown()]
            parts += ["</details>"]
        else:
            parts += [table.caption, table.markdown()]
    listed = ["\n".join(f"- {note}" for note in notes)] if notes else []
    # Notes go with the last table.
    return [*parts[:-1], *listed, parts[-1]] if folded else [*parts, *listed]


def save_figure(draw: Callable[[Any, Any], None], found: Any, path: Path) -> None:
    """Draw what was found into a figure, and write it."""
    mpl = matplotlib()
    with mpl.rc_context({"font.size": 9}):
        figure = mpl.figure.Figure(layout="constrained")
        draw(figure, found)
        figure.savefig(path, dpi=140)
