"""Write a report of run folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from snopt.base.errors import unknown
from snopt.lab.report.html import build_html
from snopt.lab.report.markdown import build_markdown
from snopt.lab.report.read import read_runs

FORMATS = ("html", "markdown")


def write_report(
    paths: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    format: str = "html",
    *,
    title: str | None = None,
    baseline: str | None = None,
    target: float | None = None,
) -> Path:
    """Read run folders and write a report about them.

    Args:
        paths: run folders, or folders that hold run folders.
        out: file to write. Markdown's figures go to a folder next to it, ``<out>_figures``.
        format: ``"html"``, one self-contained page, or ``"markdown"``.
        title: title; default the names of the tasks.
        baseline: label of the optimizer that ratios refer to; default Adam.
        target: value of the metric for the time to target; default the target of the training, or
            else the value that every seed of the baseline reached.

    Returns:
        the file that was written.

    Raises:
        UnknownName: the format is unknown, or no run has the label ``baseline``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report([folder], f"{folder}/report.html").name
        'report.html'
    """
    if format not in FORMATS:
        raise unknown("report format", format, FORMATS)
    runs, out = read_runs(paths), Path(out)
    tasks = ", ".join(dict.fromkeys(run.task for run in runs if run.is_run))
    title = title or (f"Training runs: {tasks}" if tasks else "Training runs")
    if format == "html":
        text = build_html(runs, title, baseline=baseline, target=target)
    else:
        folder = out.with_name(f"{out.stem}_figures")
        text = build_markdown(runs, title, folder, baseline=baseline, target=target)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Folder names may not be valid Unicode.
    out.write_bytes(text.encode("utf-8", errors="replace"))
    return out
