"""The report as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from snopt.lab.report.payload import page_data, to_json
from snopt.lab.report.read import Run
from snopt.lab.report.tables import (
    Comparison,
    Marked,
    compare,
    headline,
    problems_table,
    runs_table,
    summary_table,
)
from snopt.lab.table import Table

# In the order in which the script needs them.
SCRIPTS = ("scale.js", "chart.js", "picture.js", "page.js")


def build_html(
    runs: Sequence[Run],
    title: str,
    *,
    baseline: str | None = None,
    target: float | None = None,
) -> str:
    """Make the page.

    Everything that comes from a run is escaped, and the page's own policy allows the one script
    and the one style sheet that are in it, by their digests, and no request to anywhere.

    Args:
        runs: The runs.
        title: Title of the page.
        baseline: Label of the optimizer that ratios refer to; default Adam.
        target: Value of the metric whose time is taken; default that of the training, or else
            what every seed of the baseline reached.

    Example:
        >>> page = build_html([], "<b>nothing</b>")
        >>> "<h1>&lt;b&gt;nothing&lt;/b&gt;</h1>" in page
        True
    """
    comparisons = compare(runs, baseline=baseline, target=target)
    static = files("snopt.lab.report").joinpath("static")
    style = static.joinpath("report.css").read_text("utf-8")
    code = "\n".join(static.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{code}}})();\n'
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="soft">{escape(_subtitle(runs, comparisons))}</p>
{_problems(runs)}
</header>
<main>
{"".join(_task(k, comparison) for k, comparison in enumerate(comparisons))}
{_runs(comparisons)}
</main>
<footer>Curves are means over seeds at equal iterations, drawn at the seeds' mean training time;
they turn dotted where a seed has stopped. Records longer than a few hundred points are averaged
in bins.</footer>
<script type="application/json" id="report-data">{to_json(page_data(comparisons))}</script>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    """A source as the content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _subtitle(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> str:
    count = sum(len(group.runs) for task in comparisons for group in task.groups)
    machines = dict.fromkeys(_machine(run) for run in runs if run.environment)
    counted = [_counted(count, "run"), _counted(len(comparisons), "task")]
    return " · ".join([*counted, *filter(None, machines)])


def _machine(run: Run) -> str:
    """What the run was computed with, as far as its environment tells."""
    told = [str(run.environment["device"])] if "device" in run.environment else []
    for name, noun in (("threads", "thread"), ("processes", "process")):
        count = run.environment.get(name)
        if isinstance(count, int) and (count > 1 or name == "threads"):
            told.append(_counted(count, noun))
    return ", ".join(told)


def _counted(count: int, noun: str) -> str:
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def _problems(runs: Sequence[Run]) -> str:
    table = problems_table(runs)
    if table is None:
        return ""
    heading = f"<h2>{_counted(len(table.rows), 'problem')} with the records</h2>"
    return (
        f'<section class="card problems" data-problems>{heading}{_table(table, "text")}</section>'
    )


def _task(k: int, comparison: Comparison) -> str:
    others = any(run.pictures for group in comparison.groups for run in group.runs[1:])
    more = f'<div class="pictures" data-other-pictures="{k}"></div>'
    if others:
        more = f"<details><summary>Pictures of the other seeds</summary>{more}</details>"
    return f"""<section data-task="{escape(comparison.task)}">
<h2>{escape(comparison.task)}</h2>
<p class="headline">{escape(headline(comparison))}</p>
<div data-charts="{k}"><noscript>The curves need JavaScript; the tables do not.</noscript></div>
{_table(summary_table(comparison), "summary")}
<div class="pictures" data-pictures="{k}"></div>
{more}
</section>
"""


def _table(table: Table, style: str) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.texts())
    caption = f'<p class="caption soft">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'<div class="card tabled"><div class="scroll"><table class="{style}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{caption}</div>"
    )


def _cell(text: str) -> str:
    if not isinstance(text, Marked):
        return f"<td>{escape(text)}</td>"
    note = f"<small>{escape(text.note)}</small>" if text.note else ""
    return f"<td{' class=best' if text.best else ''}>{escape(text)}{note}</td>"


def _runs(comparisons: Sequence[Comparison]) -> str:
    table = runs_table(comparisons)
    if not table.rows:
        return "<p>There is no run to report.</p>"
    details = "".join(
        _details(f"{comparison.task} · {group.label}", run)
        for comparison in comparisons
        for group in comparison.groups
        for run in group.runs
    )
    return (
        f"<h2>Runs</h2>{_table(table, 'runs')}"
        f"<h3>Commands, configurations and environments</h3>{details}"
    )


def _details(name: str, run: Run) -> str:
    seed = "" if run.seed is None else f" · seed {run.seed}"
    command = run.command
    shown = f'<pre class="command" data-command>{escape(command)}</pre>' if command else ""
    parts = "".join(
        f"<h3>{name}</h3><pre>{escape(json.dumps(content, indent=2, ensure_ascii=False))}</pre>"
        for name, content in (("config", run.config), ("environment", run.environment))
        if content
    )
    return (
        f'<details class="card"><summary>{escape(name)}{seed}</summary>{shown}{parts}'
        f'<p class="soft">{escape(str(run.folder))}</p></details>'
    )
