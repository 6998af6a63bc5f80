"""The report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from snopt.lab.report import tables
from snopt.lab.report.payload import page_data, to_json
from snopt.lab.report.read import Run
from snopt.lab.report.tables import Comparison, Marked
from snopt.lab.table import Table

# In the order of their dependencies.
SCRIPTS = (
    "scale.js", "element.js", "data.js", "chart.js", "picture.js", "state.js", "settings.js",
    "page.js",
)  # fmt: skip


def build_html(
    runs: Sequence[Run], title: str, *, baseline: str | None = None, target: float | None = None
) -> str:
    """Return the HTML page.

    All content of runs is escaped. The page's content security policy allows only its own script
    and style sheet, by their digests, and no requests. ``baseline`` and ``target`` are those of
    :func:`snopt.lab.report.write_report`.

    Example:
        >>> page = build_html([], "<b>nothing</b>")
        >>> "<h1>&lt;b&gt;nothing&lt;/b&gt;</h1>" in page
        True
    """
    comparisons = tables.compare(runs, baseline=baseline, target=target)
    static = files("snopt.lab.report").joinpath("static")
    style = static.joinpath("report.css").read_text("utf-8")
    code = "\n".join(static.joinpath(name).read_text("utf-8") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{code}}})();\n'
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(static.joinpath("page.html").read_text("utf-8")).substitute(
        policy=policy,
        title=escape(title),
        style=style,
        subtitle=escape(_subtitle(runs, comparisons)),
        problems=_problems(runs),
        tasks="".join(_task(k, comparison) for k, comparison in enumerate(comparisons)),
        runs=_runs(comparisons),
        data=to_json(page_data(comparisons)),
        script=script,
    )


def _digest(text: str) -> str:
    """Return a source as the content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _subtitle(runs: Sequence[Run], comparisons: Sequence[Comparison]) -> str:
    count = sum(len(comparison.runs) for comparison in comparisons)
    machines = dict.fromkeys(_machine(run) for run in runs if run.environment)
    counted = [_counted(count, "run"), _counted(len(comparisons), "task")]
    return " · ".join([*counted, *filter(None, machines)])


def _machine(run: Run) -> str:
    """Return the device, threads and processes of a run, if its environment has them."""
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
    table = tables.problems_table(runs)
    if table is None:
        return ""
    name = f"{_counted(len(table.rows), 'problem')} with the records"
    shown = _table(table, "text", name)
    return f'<section class="card problems" data-problems><h2>{name}</h2>{shown}</section>'


def _task(k: int, comparison: Comparison) -> str:
    others = any(run.pictures for group in comparison.groups for run in group.runs[1:])
    more = f'<div class="pictures" data-other-pictures="{k}"></div>'
    if others:
        more = f"<details><summary>Pictures of the other seeds</summary>{more}</details>"
    return f"""<section data-task="{escape(comparison.task)}">
<h2>{escape(comparison.task)}</h2>
<p class="headline">{escape(tables.headline(comparison))}</p>
<div class="pictures" data-films="{k}"></div>
<div data-charts="{k}"><noscript>The curves need JavaScript; the tables do not.</noscript></div>
{_table(tables.summary_table(comparison), "summary", f"Optimizers on {comparison.task}")}
<div class="pictures" data-pictures="{k}"></div>
{more}
</section>
"""


def _table(table: Table, style: str, name: str) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(map(_cell, rest))}</tr>'
        for first, *rest in table.texts()
    )
    caption = f'<p class="caption soft">{escape(table.caption)}</p>' if table.caption else ""
    # Focusable, so the arrow keys scroll it.
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
    return (
        f'<div class="card tabled">{scroll}<table class="{style}" aria-label="{escape(name)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{caption}</div>"
    )


def _cell(text: str) -> str:
    if not isinstance(text, Marked):
        return f"<td>{escape(text)}</td>"
    best = '<span class="unseen"> (best)</span>' if text.best else ""
    note = f"<small>{escape(text.note)}</small>" if text.note else ""
    return f"<td{' class=best' if text.best else ''}>{escape(text)}{best}{note}</td>"


def _runs(comparisons: Sequence[Comparison]) -> str:
    table = tables.runs_table(comparisons)
    if not table.rows:
        return "<p>There is no run to report.</p>"
    details = "".join(
        _details(f"{comparison.task} · {group.label}", run)
        for comparison in comparisons
        for group, run in comparison.runs
    )
    return (
        f"<h2>Runs</h2>{_table(table, 'runs', 'Runs')}<div data-settings></div>"
        f"<h3>Commands, configurations and environments</h3>{details}"
    )


def _details(name: str, run: Run) -> str:
    name = escape(name) + ("" if run.seed is None else f" · seed {run.seed}")
    command = f'<pre class="command">{escape(run.command)}</pre>' if run.command else ""
    parts = "".join(
        f"<h3>{part}</h3><pre data-{part}>{escape(json.dumps(content, indent=2))}</pre>"
        for part, content in (("config", run.config), ("environment", run.environment))
        if content
    )
    return (
        f'<details class="card" data-run="{name}"><summary>{name}</summary>{command}{parts}'
        f'<p class="soft">{escape(str(run.folder))}</p></details>'
    )
