"""The site: notebooks run and are stored small; docstrings and notebooks become Markdown.

`make docs` builds the site itself, and fails on a broken link.
"""

import importlib.util
import json
import re
import sys
import types
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.pages import anchors

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))


def extension(name, monkeypatch):
    """A module of docs/_extensions, without the packages that build the site."""
    names = ("Extension", "Object", "MkDocsConfig", "File", "Files", "Page")
    stub = types.SimpleNamespace(**dict.fromkeys(names, object))
    for package in ("griffe", "mkdocs.config.defaults", "mkdocs.structure.files"):
        monkeypatch.setitem(sys.modules, package, stub)
    for package in ("mkdocs", "mkdocs.config", "mkdocs.structure", "mkdocs.structure.pages"):
        monkeypatch.setitem(sys.modules, package, stub)
    path = DOCS / "_extensions" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------ notebooks


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch, tmp_path):
    monkeypatch.setenv("SNOPT_ITERATIONS", "2")
    monkeypatch.setenv("SNOPT_DATA", str(tmp_path))  # only data that need no download
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_executed_small_and_without_names_of_folders(path):
    text = path.read_text("utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert len(text) < 600_000
    assert not re.search(r"/(tmp|home|work|root)/", text)


def test_all_notebooks_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["quickstart", "series", "two_moons"]


def cell(kind, source, outputs=(), **metadata):
    return {"cell_type": kind, "source": source, "outputs": list(outputs), "metadata": metadata}


def test_notebook_becomes_a_page(monkeypatch):
    notebooks = extension("notebooks", monkeypatch)
    printed = [{"output_type": "stream", "name": "stdout", "text": t} for t in ("a < b\n", "c\n")]
    image = {"output_type": "display_data", "data": {"image/png": "QUJD\n", "text/plain": "<F>"}}
    page = notebooks.markdown(
        {"cells": [
            cell("markdown", ["# Title\n", "\n", "Text with $x$."]),
            cell("code", "print(1)", printed),
            cell("code", "draw()", [image], alt='a "curve"'),
            cell("code", "silent()"),
        ]},
        "some.ipynb",
    )  # fmt: skip
    assert page.startswith("# Title\n\n<a ")
    assert 'href="some.ipynb"' in page
    assert "Text with $x$." in page
    assert "```python\nprint(1)\n```" in page
    assert "<pre><code>a &lt; b\nc\n</code></pre>" in page
    assert '<img alt="a &quot;curve&quot;" src="data:image/png;base64,QUJD">' in page
    assert page.endswith("```python\nsilent()\n```\n")


def test_notebook_that_failed_is_refused(monkeypatch):
    notebooks = extension("notebooks", monkeypatch)
    error = {"output_type": "error", "ename": "ValueError", "evalue": "no"}
    with pytest.raises(ValueError, match="the notebook failed: ValueError: no"):
        notebooks.markdown({"cells": [cell("code", "fail()", [error])]}, "some.ipynb")


# ------------------------------------------------------------------------- moved pages


def test_pages_that_moved_lead_to_pages_that_exist(monkeypatch, tmp_path):
    moved = extension("moved", monkeypatch)
    moved.on_post_build(types.SimpleNamespace(site_dir=tmp_path))
    for old, new in moved.MOVED.items():
        page, _, anchor = new.partition("#")
        text = (DOCS / page).with_suffix(".md").read_text("utf-8")
        assert not anchor or anchor in anchors(text), new
        assert not (DOCS / old).with_suffix(".md").exists(), f"{old} hides a page"
        assert f'href="{new}"' in (tmp_path / old).read_text("utf-8")


# ----------------------------------------------------------------------------- docstrings


def test_tables_of_docstrings_become_markdown(monkeypatch):
    markdown = extension("rst_roles", monkeypatch).markdown
    text = """Rules:

    ====  ==========
    rule  what |x|
    ====  ==========
    a     one
          and more
    b     two
    ====  ==========

    More."""
    assert (
        markdown(text)
        == """Rules:

    | rule | what \\|x\\| |
    | --- | --- |
    | a | one and more |
    | b | two |

    More."""
    )


def test_mathematics_and_references_of_docstrings_become_markdown(monkeypatch):
    markdown = extension("rst_roles", monkeypatch).markdown
    assert markdown("Solve :math:`x \\in\n    R^m`.") == "Solve $x \\in R^m$."
    block = "Text:\n\n.. math::\n    a = b, \\\\\n    c = d\n\nMore.\n"
    assert re.sub(r"\n+", "\n", markdown(block)) == (
        "Text:\n$$\na = b, \\\\\nc = d\n$$\nMore.\n"
    )  # fmt: skip
    line = "    Text\n\n    .. math:: a = b\n\n    More.\n"
    assert (
        re.sub(r"\n+", "\n", markdown(line)) == "    Text\n    $$\n    a = b\n    $$\n    More.\n"
    )
    assert markdown("See :class:`~snopt.SNOpt`.") == (
        'See <autoref optional identifier="snopt.SNOpt"><code>SNOpt</code></autoref>.'
    )
    assert markdown("Example:\n    >>> 1") == "Examples:\n    >>> 1"


def test_no_mark_of_mathematics_is_left_in_any_docstring(monkeypatch):
    markdown = extension("rst_roles", monkeypatch).markdown
    for path in (ROOT / "src").rglob("*.py"):
        text = markdown(path.read_text("utf-8"))
        assert ".. math::" not in text, path
        # The table of singd.py has three parts and is not on the site.
        assert not re.search(r"^ *=====+ ", text, re.M) or path.name == "singd.py", path
        assert ":math:`" not in text, path


# ---------------------------------------------------------------------------------- files


def test_pages_fetch_nothing_from_elsewhere():
    files = [*DOCS.glob("assets/*"), *DOCS.glob("assets/katex/*.css"), *DOCS.glob("overrides/*")]
    for path in files:
        if path.is_file():
            found = re.findall(
                r"(?:src=|href=|url\(|fetch\()[\"']?https?:", path.read_text("utf-8")
            )
            assert not found, path
    fonts = re.findall(r"url\((fonts/[^)]+)\)", (DOCS / "assets/katex/katex.min.css").read_text())
    assert len(fonts) == 20
    for font in fonts:
        assert (DOCS / "assets" / "katex" / font).is_file()


def test_citation_names_this_version():
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert found
    assert f"\nversion: {found[1]}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
