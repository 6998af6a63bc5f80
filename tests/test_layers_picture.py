"""The picture of the layers is that of the table beside it."""

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_picture_is_drawn_from_the_table_as_it_is():
    spec = importlib.util.spec_from_file_location("layers", DOCS / "_extensions" / "layers.py")
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    rows = layers.table((DOCS / "architecture.md").read_text("utf-8"))
    assert len(rows) > 5
    assert layers.picture(rows) == (DOCS / "layers.svg").read_text("utf-8"), (
        "the table has changed: python docs/_extensions/layers.py"
    )
