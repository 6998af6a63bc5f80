"""The code that docs/training.md shows runs as it stands."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_python_blocks_of_the_page_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["outcome"].status == "finished"
    assert names["outcome"].last["test"]["accuracy"] > 0.9
    assert names["main"]().status in ("finished", "target")
