"""Tables in their places on a page: between ``<!-- name -->`` and ``<!-- /name -->``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def put(page: Path, tables: Mapping[str, str]) -> None:
    """Replace the tables of a page, each by its name; the rest of the page stays.

    Args:
        page: a Markdown file that has a place for each of them.
        tables: their text.
    """
    text = page.read_text()
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{table}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text)
