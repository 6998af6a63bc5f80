"""Tables, curves and pictures of run folders: one HTML page, or Markdown with figures."""

from snopt.lab.report.figures import write_figures
from snopt.lab.report.html import build_html
from snopt.lab.report.read import Run, read_runs
from snopt.lab.report.tables import compare
from snopt.lab.report.write import write_report

__all__ = ["Run", "build_html", "compare", "read_runs", "write_figures", "write_report"]
