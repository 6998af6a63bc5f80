"""From run folders to a report on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from snopt.base.errors import unknown
from snopt.lab.report.figures import write_figures
from snopt.lab.report.html import build_html
from snopt.lab.report.markdown import build_markdown
from snopt.lab.report.read import Run, read_runs
from snopt.lab.report.tables import compare

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
        paths: Run folders, or folders that hold run folders.
        out: File to write. Markdown's figures go to a folder next to it, ``<out>_figures``.
        format: ``"html"``, one page that needs nothing else, or ``"markdown"``.
        title: Title; default the names of the tasks.
        baseline: Label of the optimizer that ratios refer to; default Adam.
        target: Value of the metric whose time is taken; default that of the training, or else
            what every seed of the baseline reached.

    Returns:
        The file that was written.

    Raises:
        UnknownName: An unknown format, or no run of the label ``baseline``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_report([folder], f"{folder}/report.html").name
        'report.html'
    """
    if format not in FORMATS:
        raise unknown("report format", format, FORMATS)
    runs, out = read_runs(paths), Path(out)
    title = title or _title(runs)
    if format == "html":
        text = build_html(runs, title, baseline=baseline, target=target)
    else:
        text = _markdown(runs, out, title, baseline, target)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Folder names need not be Unicode.
    out.write_bytes(text.encode("utf-8", errors="replace"))
    return out


def _title(runs: Sequence[Run]) -> str:
    tasks = dict.fromkeys(run.task for run in runs if run.is_run)
    return f"Training runs: {', '.join(tasks)}" if tasks else "Training runs"


def _markdown(
    runs: Sequence[Run], out: Path, title: str, baseline: str | None, target: float | None
) -> str:
    comparisons = compare(runs, baseline=baseline, target=target)
    folder = out.with_name(f"{out.stem}_figures")
    try:
        figures = {
            task: [quote(f"{folder.name}/{path.name}") for path in drawn]
            for task, drawn in write_figures(comparisons, folder).items()
        }
    except ImportError as error:
        # The tables are worth having without the figures, if the text says what is missing.
        return build_markdown(runs, comparisons, title, {}) + f"\nNo figures: {error}.\n"
    return build_markdown(runs, comparisons, title, figures)
