"""Keep the addresses of pages that moved.

A hook of MkDocs (`hooks:` in mkdocs.yml). At each old address it writes a page that leads to the
new one.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

MOVED = {
    "citation.html": "index.html#citation",
    "extending.html": "architecture.html#add-your-own",
    "horizon.html": "theory/horizon.html",
}

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="refresh" content="1; url={new}">
<script>location.replace("{page}" + (location.hash || "{anchor}"));</script>
<a href="{new}">This page has moved.</a>
"""


def redirect(new: str) -> str:
    """Return a page that leads to another one, and keeps the anchor that was asked for."""
    page, mark, anchor = new.partition("#")
    return PAGE.format(new=new, page=page, anchor=mark + anchor)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the pages."""
    for old, new in MOVED.items():
        (Path(config.site_dir) / old).write_text(redirect(new), "utf-8")
