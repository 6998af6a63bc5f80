"""Results as files: one folder per item, and one page of all results of a scale."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from snopt.lab.config import Scale
from snopt.lab.paper.item import Item, Result, Space, Table
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.scales import SEEDS
from snopt.lab.train.folder import replace_text, write_json

__all__ = ["read_result", "write_page", "write_result"]

LONG = 30
"""Rows above which the page folds a table."""
HEAD = """# Results

Made by `snopt paper page --scale {scale}` from the records of `snopt paper`. Every table names its
command; the numbers behind tables and figures are in `{folder}/`, one file per item. The paper's
values were measured on a GPU, at full length, by other code: they are here for orientation. Means
and standard deviations (n - 1) are over {seeds} seeds. Seconds are of training, without
evaluation. All methods start from the same weights and see the same batches. Every method had the
same number of learning rates to choose from, judged on validation data with a seed that no table
reports."""


def write_result(item: Item, space: Space, result: Result) -> None:
    """Write ``result.json``, ``table.md`` and, if the item has one, ``figure.png``."""
    folder = space.output(item.id)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "result.json", {"item": item.id, "scale": space.scale, **asdict(result)})
    (folder / "table.md").write_text(_markdown(item, space.scale, result) + "\n", encoding="utf-8")
    _draw(item, result, folder / "figure.png")


def read_result(path: Path) -> Result:
    """Read a ``result.json``."""
    content = json.loads(path.read_text("utf-8"))
    tables = [Table(**table) for table in content["tables"]]
    return Result(tables, content["notes"], content["curves"])


def write_page(space: Space, path: Path) -> Path:
    """Write the results of all items that have been run at a scale.

    Results come from the folder of the records, or else from the page's own folder, so that a page
    can be updated item by item. A file ``ID.md`` in the page's folder is a remark below the item's
    tables; ``page.md`` is a remark on the whole page.

    Args:
        space: where the records are.
        path: the page; data and figures go to the folder of the same name beside it.

    Returns:
        The path of the page.
    """
    beside = path.with_suffix("")
    parts = [HEAD.format(scale=space.scale, folder=beside.name, seeds=SEEDS[space.scale])]
    parts[0] += _remark(beside, "page")
    for item in ITEMS.values():
        kept = beside / f"{item.id}.json"
        source = space.output(item.id) / "result.json"
        if source.exists():
            beside.mkdir(parents=True, exist_ok=True)
            write_json(kept, json.loads(source.read_text("utf-8")))
        if kept.exists() and item.shown:
            parts.append(_section(item, space, beside))
    replace_text(path, "\n\n".join(parts) + "\n")
    return path


def _section(item: Item, space: Space, beside: Path) -> str:
    result = read_result(beside / f"{item.id}.json")
    text = _markdown(item, space.scale, result, fold=True) + _remark(beside, item.id)
    if item.draw is None:
        return text
    _draw(item, result, beside / f"{item.id}.png")
    return f"{text}\n\n![{item.title}]({beside.name}/{item.id}.png)"


def _remark(beside: Path, name: str) -> str:
    path = beside / f"{name}.md"
    return f"\n\n{path.read_text('utf-8').strip()}" if path.exists() else ""


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
    if item.draw is None:
        return
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'snopt[lab]'") from error
    figure = Figure(layout="constrained")
    item.draw(figure, result)
    figure.savefig(path, dpi=110)
