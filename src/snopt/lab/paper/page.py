"""One page of all results of a scale."""

from __future__ import annotations

import json
from pathlib import Path

from snopt.lab.paper.item import Item, Result, Space, Table
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.scales import SEEDS
from snopt.lab.paper.suite import draw_result, result_markdown
from snopt.lab.train.folder import replace_text, write_json

__all__ = ["read_result", "write_page"]

HEAD = """# Results

Made by `snopt paper page --scale {scale}` from the records of `snopt paper`. Every table names its
command; the numbers behind tables and figures are in `{folder}/`, a file an item. The paper's
values were measured on a GPU, at full length, by other code: they are here for orientation. Means
and standard deviations (n - 1) are over {seeds} seeds. Seconds are of training, without
evaluation. All methods start from the same weights and see the same batches. Every method had the
same number of learning rates to choose from, judged on validation data with a seed that no table
reports."""


def write_page(space: Space, path: Path) -> Path:
    """Write what all items found that have been run at a scale.

    Results are taken from the records' folder; one that is missing there, from the page's own
    folder, so that a page can be brought up to date item by item. A file ``ID.md`` in that folder
    is a remark, and is put below the item's tables; ``page.md`` is one on the whole page.

    Args:
        space: where the records are.
        path: the page; data and figures go to the folder of its name beside it.

    Returns:
        The page's path.
    """
    beside = path.with_suffix("")
    parts = []
    for item in ITEMS.values():
        found = [space.output(item.id) / "result.json", beside / f"{item.id}.json"]
        source = next((file for file in found if file.exists()), None)
        if source is not None:
            parts.append(_section(item, space, source, beside))
    head = HEAD.format(scale=space.scale, folder=beside.name, seeds=SEEDS[space.scale])
    replace_text(path, "\n\n".join([head + _remark(beside, "page"), *parts]) + "\n")
    return path


def _section(item: Item, space: Space, source: Path, beside: Path) -> str:
    beside.mkdir(parents=True, exist_ok=True)
    result = read_result(source)
    if source.parent != beside:
        write_json(beside / f"{item.id}.json", json.loads(source.read_text("utf-8")))
    text = result_markdown(item, space.scale, result).strip() + _remark(beside, item.id)
    if item.draw is not None:
        draw_result(item, result, beside / f"{item.id}.png")
        text += f"\n\n![{item.title}]({beside.name}/{item.id}.png)"
    return text


def _remark(beside: Path, name: str) -> str:
    path = beside / f"{name}.md"
    return f"\n\n{path.read_text('utf-8').strip()}" if path.exists() else ""


def read_result(path: Path) -> Result:
    """Read a result back.

    Args:
        path: a ``result.json``.
    """
    content = json.loads(path.read_text("utf-8"))
    tables = [Table(**table) for table in content["tables"]]
    return Result(tables, content["notes"], content["curves"])
