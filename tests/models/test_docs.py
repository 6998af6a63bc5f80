"""What docs/models.md shows runs, and its table of parameters is right."""

import re
from pathlib import Path

import snopt.models

TEXT = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")


def test_python_blocks_of_the_guide_run():
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.M)
    assert len(blocks) >= 9
    for block in blocks:
        exec(compile(block, "docs/models.md", "exec"), names)
    assert names["logits"].shape == (8, 4)


def test_the_table_tells_the_numbers_of_parameters():
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| ([\d,]+) \|$", TEXT, re.M)
    assert len(rows) == 8
    for code, count in rows:
        model = eval(code, vars(snopt.models).copy())
        assert sum(p.numel() for p in model.parameters()) == int(count.replace(",", "")), code
