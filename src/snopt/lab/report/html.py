"""The report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup

from snopt.lab.report import tables
from snopt.lab.report.payload import page_data, to_json
from snopt.lab.report.read import Run
from snopt.lab.report.tables import Comparison

# In the order of their dependencies.
SCRIPTS = (
    "scale.js", "element.js", "data.js", "chart.js", "picture.js", "state.js", "settings.js",
    "page.js",
)  # fmt: skip

# Escapes every value that is not Markup.
TEMPLATES = Environment(
    autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)


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
    page = TEMPLATES.from_string(static.joinpath("page.html").read_text("utf-8"))
    return page.render(
        policy=Markup(policy),
        title=title,
        style=Markup(style),
        subtitle=_subtitle(runs, comparisons),
        problems=tables.problems_table(runs),
        comparisons=comparisons,
        data=Markup(to_json(page_data(comparisons))),
        script=Markup(script),
        tables=tables,
        counted=_counted,
        json=json.dumps,
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
