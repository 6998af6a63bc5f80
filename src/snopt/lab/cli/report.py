"""``snopt report``: one page about many runs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from snopt.lab.cli.options import UsageError
from snopt.lab.report import write_report
from snopt.lab.report.read import run_folders


def report(
    runs: tuple[Path, ...],
    /,
    *,
    out: Path | None = None,
    format: Literal["html", "markdown"] = "html",
) -> int:
    """Compare runs on one page: curves, tables, learned flows.

    Args:
        runs: run folders, or folders that contain run folders.
        out: file to write (also -o); default report.html or report.md.
        format: one self-contained page, or Markdown with figures beside it.

    Returns:
        The exit code.
    """
    if not runs:
        raise UsageError("say which runs to report on: snopt report FOLDER, for example out")
    for path in runs:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; give a run folder or a parent of some")
    if not any(any(run_folders(path)) for path in runs):
        raise ValueError(f"there is no run to report on in {', '.join(map(str, runs))}")
    out = out or Path("report.html" if format == "html" else "report.md")
    print(write_report(runs, out, format).resolve())
    return 0
