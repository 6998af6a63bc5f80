"""Show executed notebooks as pages of the site.

A hook of MkDocs (`hooks:` in mkdocs.yml). A notebook under docs becomes a page in the site's own
style: text and mathematics as on any page, code in code blocks, stored outputs below them. The
notebook itself is copied beside the page, for readers who want to run it.

Nothing is executed here: `make notebooks` runs the notebooks and stores their outputs.
"""

from __future__ import annotations

import json
import re
import shutil
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

IMAGES = ("image/gif", "image/png")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class NotebookFile(File):
    """A notebook that MkDocs takes for a page."""

    def is_documentation_page(self) -> bool:
        """Say yes, so that it gets a place in the navigation and in search."""
        return True


def text_of(value: str | list[str]) -> str:
    """Join the lines of a text, which the format stores as one string or as several."""
    return value if isinstance(value, str) else "".join(value)


def shown(output: dict[str, Any], alt: str) -> str:
    """Return the HTML of one output of a cell.

    Raises:
        ValueError: The cell failed when the notebook was last executed.
    """
    if output["output_type"] == "error":
        raise ValueError(f"the notebook failed: {output['ename']}: {output['evalue']}")
    if output["output_type"] == "stream":
        return _printed(output["text"])
    data = output["data"]
    for kind in IMAGES:
        if kind in data:
            content = "".join(text_of(data[kind]).split())
            return f'<img alt="{escape(alt)}" src="data:{kind};base64,{content}">'
    return text_of(data["text/html"]) if "text/html" in data else _printed(data["text/plain"])


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join what was printed in several pieces."""
    found: list[dict[str, Any]] = []
    for output in outputs:
        if found and output.get("name") and output["name"] == found[-1].get("name"):
            text = text_of(found[-1]["text"]) + text_of(output["text"])
            found[-1] = {**output, "text": text}
        else:
            found.append(output)
    return found


def _printed(text: str | list[str]) -> str:
    return f"<pre><code>{escape(ANSI.sub('', text_of(text)))}</code></pre>"


def cell_markdown(cell: dict[str, Any]) -> str:
    """Return one cell as Markdown."""
    source = text_of(cell["source"])
    if cell["cell_type"] != "code":
        return source
    code = f"```python\n{source}\n```"
    alt = cell["metadata"].get("alt", "output of the code above")
    outputs = "\n".join(shown(output, alt) for output in joined(cell["outputs"]))
    return f'{code}\n\n<div class="output">\n{outputs}\n</div>' if outputs else code


def markdown(notebook: dict[str, Any], name: str) -> str:
    """Return a notebook as Markdown, with a link to the file after its heading."""
    first, *rest = (cell_markdown(cell) for cell in notebook["cells"])
    heading, _, text = first.partition("\n")
    link = f'<a class="download" download href="{name}">Download this notebook</a>'
    return "\n\n".join([heading, link, text.strip(), *rest]) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make pages of the notebooks."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            folders = (config.docs_dir, config.site_dir)
            files.append(NotebookFile(file.src_uri, *folders, config.use_directory_urls))
    return files


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Return the Markdown of a notebook; None for other pages."""
    del config
    path = Path(page.file.abs_src_path or "")
    if path.suffix != ".ipynb":
        return None
    return markdown(json.loads(path.read_text("utf-8")), path.name)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the notebooks beside their pages."""
    for path in Path(config.docs_dir).rglob("*.ipynb"):
        target = Path(config.site_dir) / path.relative_to(config.docs_dir)
        shutil.copyfile(path, target)
