"""The report as Markdown: the tables of the page, with figures in files next to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from snopt.lab.report import tables
from snopt.lab.report.read import Run
from snopt.lab.report.tables import Comparison, Marked
from snopt.lab.table import Cell, Table


def build_markdown(
    runs: Sequence[Run],
    comparisons: Sequence[Comparison],
    title: str,
    figures: Mapping[str, Sequence[str]],
) -> str:
    """Return the report as Markdown; ``figures`` are paths by task, relative to the report."""
    parts = [f"# {plain(title)}"]
    problems = tables.problems_table(runs)
    if problems is not None:
        parts += ["## Problems with the records", markdown_table(problems)]
    for comparison in comparisons:
        table = tables.summary_table(comparison)
        parts += [f"## {plain(comparison.task)}", plain(tables.headline(comparison))]
        parts += [
            f"![{plain(comparison.task)}]({path})" for path in figures.get(comparison.task, [])
        ]
        parts += [markdown_table(table), plain(table.caption)]
    if comparisons:
        parts += ["## Runs", markdown_table(tables.runs_table(comparisons))]
    commands = dict.fromkeys(run.command for run in runs if run.command)
    if commands:
        parts += ["## Commands", *(_code(command) for command in commands)]
    return "\n\n".join(parts) + "\n"


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
