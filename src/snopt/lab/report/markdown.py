"""The report as Markdown: the tables of the page, with figures in files next to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from snopt.lab.report import tables
from snopt.lab.report.figures import write_figures
from snopt.lab.report.read import Run
from snopt.lab.report.tables import Marked
from snopt.lab.table import Cell, Table


def build_markdown(
    runs: Sequence[Run],
    title: str,
    folder: Path,
    *,
    baseline: str | None = None,
    target: float | None = None,
) -> str:
    """Return the report as Markdown, and draw its figures into ``folder``, which is next to it.

    The other arguments are those of :func:`snopt.lab.report.html.build_html`.
    """
    comparisons = tables.compare(runs, baseline=baseline, target=target)
    figures: dict[str, list[Path]] = {}
    missing = []
    try:
        figures = write_figures(comparisons, folder)
    except ImportError as error:  # the tables are useful without the figures
        missing = [f"No figures: {error}."]
    parts = [f"# {plain(title)}"]
    problems = tables.problems_table(runs)
    if problems is not None:
        parts += ["## Problems with the records", markdown_table(problems)]
    for comparison in comparisons:
        table = tables.summary_table(comparison)
        parts += [f"## {plain(comparison.task)}", plain(tables.headline(comparison))]
        for path in figures.get(comparison.task, []):
            parts.append(f"![{plain(comparison.task)}]({quote(f'{folder.name}/{path.name}')})")
        parts += [markdown_table(table), plain(table.caption)]
    if comparisons:
        parts += ["## Runs", markdown_table(tables.runs_table(comparisons))]
    commands = dict.fromkeys(run.command for run in runs if run.command)
    if commands:
        parts += ["## Commands", *(_code(command) for command in commands)]
    return "\n\n".join([*parts, *missing]) + "\n"


def plain(text: str) -> str:
    r"""Escape everything that would be markup, HTML or the end of a cell, on one line.

    Example:
        >>> print(plain("<b>*x*|y"))
        &lt;b>\*x\*\|y
    """
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)


def markdown_table(table: Table) -> str:
    """Return a table in Markdown: the best of a column in bold, notes in parentheses, escaped."""
    rows: list[list[Cell]] = [[*map(_cell, row)] for row in table.texts()]
    return Table("", [*map(plain, table.columns)], rows).markdown()


def _cell(text: str) -> str:
    if not isinstance(text, Marked):
        return plain(text)
    shown = f"**{plain(text)}**" if text.best else plain(text)
    return f"{shown} ({plain(text.note)})" if text.note else shown


def _code(text: str) -> str:
    """Fence code with more backticks than are in it."""
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{fence}sh\n{text}\n{fence}"
