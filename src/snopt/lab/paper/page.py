"""Results as files: one folder per item, and one page of all results of a scale."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from snopt.lab.config import Scale
from snopt.lab.paper import headline
from snopt.lab.paper.item import Item, Result, Space, Table
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.scales import TUNING_SEED
from snopt.lab.report.figures import matplotlib
from snopt.lab.train.folder import as_json, replace_text, write_json

__all__ = ["read_result", "write_page", "write_result"]

FORMAT = 2
"""Version of the JSON files; the page does not show those of another one."""
LONG = 30
"""Rows above which the page folds a table."""
HEAD = """# Results

Made by `snopt paper page --scale {scale}`; [how methods are compared, and what differs from the
paper](reproducing.md). The numbers behind tables and figures are in `{folder}/`, one file per item,
with every run of the main comparison. The paper's values were measured on a GPU, at full length, by
other code."""
FIGURE = """*Validation performance over CPU seconds, one panel per data set. A line further left
and higher (accuracy) or lower (likelihood) is faster. Bands are the range over seeds; starts and
spikes are clipped.*"""


def write_result(item: Item, space: Space, result: Result) -> None:
    """Write ``result.json``, ``table.md`` and, if the item has one, ``figure.png``."""
    folder = space.output(item.id)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", _content(item, space, result))
    (folder / "table.md").write_text(_markdown(item, space.scale, result) + "\n", encoding="utf-8")
    _draw(item, result, folder / "figure.png")


def _content(item: Item, space: Space, result: Result) -> dict[str, Any]:
    return {"format": FORMAT, "item": item.id, "scale": space.scale, **asdict(result)}


def read_result(path: Path) -> Result:
    """Read a ``result.json``."""
    content = json.loads(path.read_text("utf-8"))
    tables = [Table(**table) for table in content["tables"]]
    return Result(tables, content["notes"], content["curves"])


def write_page(space: Space, path: Path) -> Path:
    """Write the results of all items that have been run at a scale, also in part.

    Results come from the records, or else from the page's own folder, so that a page can be made
    again without them. A file ``ID.md`` in the page's folder is a remark below the item's tables;
    ``page.md`` is a remark on the whole page.

    Data and figures go to the folder of the same name beside the page, whose path is returned.
    """
    beside = path.with_suffix("")
    beside.mkdir(parents=True, exist_ok=True)
    main = {job.folder for job in ITEMS["accu"].jobs(space)}
    for item in ITEMS.values():
        if _known(item, space, main):
            content = json.dumps(as_json(_content(item, space, item.result(space))))
            replace_text(beside / f"{item.id}.json", f"{content}\n")
    shown = [item for item in ITEMS.values() if item.shown and _kept(item, beside)]
    parts = [HEAD.format(scale=space.scale, folder=beside.name), *_opening(space, beside)]
    parts[-1] += _remark(beside, "page")
    parts += [_section(item, space, beside) for item in shown]
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


def _kept(item: Item, beside: Path) -> bool:
    path = beside / f"{item.id}.json"
    return path.exists() and json.loads(path.read_text("utf-8")).get("format") == FORMAT


def _opening(space: Space, beside: Path) -> list[str]:
    """Return the main comparison at a glance."""
    known = _kept(ITEMS["accu"], beside)
    compared = read_result(beside / "accu.json").curves if known else {}
    if not compared:
        return ["The main comparison has not been run yet."]
    table = headline.headline(compared)
    save_figure(lambda figure: headline.draw(figure, compared), beside / "headline.png")
    said = [headline.rising(compared), headline.not_run(compared)]
    said += [headline.parts_of_data(compared)] if space.scale == "cpu" else []
    return [
        table.markdown(),
        table.caption,
        headline.counts(compared),
        f"![Convergence by CPU seconds]({beside.name}/headline.png)\n\n{FIGURE}",
        *(line for line in said if line),
    ]


def _section(item: Item, space: Space, beside: Path) -> str:
    result = read_result(beside / f"{item.id}.json")
    text = _markdown(item, space.scale, result, fold=True) + _remark(beside, item.id)
    if item.draw is None:
        return text
    _draw(item, result, beside / f"{item.id}.png")
    caption = f"\n\n*{item.caption}*" if item.caption else ""
    return f"{text}\n\n![{item.title}]({beside.name}/{item.id}.png){caption}"


def _remark(beside: Path, name: str) -> str:
    path = beside / f"{name}.md"
    # Links of a remark are relative to its own folder.
    text = path.read_text("utf-8").strip().replace("](../", "](") if path.exists() else ""
    return text and f"\n\n{text}"


def _markdown(item: Item, scale: Scale, result: Result, *, fold: bool = False) -> str:
    names = ", ".join(f"`{label}`" for label in item.labels)
    origin = f"The paper's {names}" if names else "Beyond the paper"
    parts = [f"## {item.title}", f"{origin}. `snopt paper {item.id} --scale {scale}`"]
    for table in result.tables:
        if fold and len(table.rows) > LONG:
            summary = f"<summary>{table.caption}</summary>"
            parts.append(f'<details markdown="1">{summary}\n\n{table.markdown()}\n\n</details>')
        else:
            parts += [table.caption, table.markdown()]
    if result.notes:
        parts.append("\n".join(f"- {note}" for note in result.notes))
    return "\n\n".join(parts)


def _draw(item: Item, result: Result, path: Path) -> None:
    draw = item.draw
    if draw is not None:
        save_figure(lambda figure: draw(figure, result), path)


def save_figure(draw: Callable[[Any], None], path: Path) -> None:
    """Draw a figure and write it."""
    figure = matplotlib().figure.Figure(layout="constrained")
    draw(figure)
    figure.savefig(path, dpi=110)
