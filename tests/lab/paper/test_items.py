"""Every item of the paper runs at the smallest scale, and the same item again goes on."""

import json
import re
from pathlib import Path

import pytest

from snopt.lab.cli.main import main
from snopt.lab.paper import ITEMS, Result, Space, Table, find, published, run_item, state
from snopt.lab.paper.page import write_page, write_result
from snopt.lab.paper.queue import pending

LABELS = [
    "table:adj2-error",
    "table:memory-comp",
    "fig:convergence",
    "fig:convergence-full",
    "fig:convergence-full2",
    "table:accu",
    "table:accu-bar",
    "fig:complexity",
    "table:runtime",
    "table:memory",
    "fig:point-cloud",
    "table:adap-t1",
    "fig:adap-t1b",
    "fig:app-adap-t1b",
    "fig:adap-t1",
    "fig:app-adap-t1a",
    "table:reg",
    "fig:recur-adj",
    "table:mali-accu",
    "table:mali-runtime",
    "table:lbfgs",
    "table:iadams",
    "table:resnet",
    "table:batch",
    "table:hyper",
    "coro:4",
]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all test processes: items share their runs."""
    base = tmp_path_factory.getbasetemp()
    # Under pytest-xdist each process has a folder of its own inside a common one.
    return (base.parent if "popen" in base.name else base) / "paper"


def quiet(item, space):
    return run_item(item, space, watch=lambda folder: (), tell=lambda label: None)


def test_every_table_and_figure_is_there():
    assert sorted(label for item in ITEMS.values() for label in item.labels) == sorted(LABELS)
    for label in LABELS:
        assert label in find(label).labels


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_runs_and_writes_its_table(name, shared, data_root):
    item, space = ITEMS[name], Space(shared, "smoke")
    result = quiet(item, space)
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert any(table.rows for table in result.tables)
    folder = space.output(name)
    assert json.loads((folder / "result.json").read_text())["item"] == name
    assert f"snopt paper {name} --scale smoke" in (folder / "table.md").read_text()
    assert (folder / "figure.png").exists() == (item.draw is not None)
    # All is done: nothing is computed again.
    assert pending([item], space) == []
    assert str(state(item, space)) == "done"


def test_an_item_goes_on_where_it_stopped(tmp_path):
    space = Space(tmp_path, "smoke", ("circle",))
    item = find("accu")
    first, *others = pending([item], space)
    first.do(lambda folder: ())
    begun = (first.folder / "metrics.jsonl").read_bytes()
    assert str(state(item, space)) == f"1 of {1 + len(others)}"
    quiet(item, space)
    assert (first.folder / "metrics.jsonl").read_bytes() == begun
    assert str(state(item, space)) == "done"


def test_items_share_their_runs(tmp_path):
    space = Space(tmp_path, "smoke", ("circle",))
    quiet(find("accu"), space)
    assert pending([find("convergence")], space) == []


def test_the_command_lists_runs_and_pages(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "list", "--scale", "smoke"]) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in LABELS)
    assert "not started" in shown
    words = ["paper", "table:accu", "--scale", "smoke", "--tasks", "circle", "--quiet"]
    assert main(words) == 0
    assert re.search(r"Circle\s+method: SNOpt \(default\)", capsys.readouterr().out)
    assert main(["paper", "page", "--scale", "smoke", "--page", "docs/found.md"]) == 0
    page = Path("docs/found.md").read_text()
    assert "## Test performance" in page
    assert "0.86 ± 0.04" in page
    assert Path("docs/found/accu.json").exists()


def test_a_page_keeps_what_was_measured_elsewhere_and_shows_remarks(tmp_path):
    space = Space(tmp_path / "out", "smoke", ("circle",))
    quiet(find("accu"), space)
    assert main(["paper", "page", "--scale", "smoke", "--out", str(tmp_path / "out"),
                 "--page", str(tmp_path / "results.md")]) == 0  # fmt: skip
    before = (tmp_path / "results.md").read_text()
    (tmp_path / "results" / "accu.md").write_text("A remark.")
    (tmp_path / "results" / "page.md").write_text("On all.")
    assert main(["paper", "page", "--scale", "smoke", "--out", str(tmp_path / "nothing"),
                 "--page", str(tmp_path / "results.md")]) == 0  # fmt: skip
    after = (tmp_path / "results.md").read_text()
    assert after.replace("\n\nA remark.", "").replace("\n\nOn all.", "") == before
    assert after.index("headline.png") < after.index("On all.") < after.index("## Test performance")
    assert after.index("## Test performance") < after.index("A remark.")


def test_a_long_table_is_folded_on_the_page_and_a_grid_left_out(tmp_path):
    space, page = Space(tmp_path / "out", "smoke"), tmp_path / "results.md"
    (tmp_path / "results").mkdir()
    for name, count in (("batch", 40), ("mali", 3), ("hyper", 3)):
        table = Table(f"Table of {name}.", ["a", "b"], [["x", "y"]] * count)
        write_result(ITEMS[name], space, Result([table], ["Said once.", f"On {name}."]))
        made = space.output(name)
        (made / "result.json").rename(tmp_path / "results" / f"{name}.json")
    write_page(space, page)
    text = page.read_text()
    assert text.count("<details") == text.count("</details>") == 1
    assert "<summary>Table of batch.</summary>" in text
    assert "Table of mali." in text
    assert "Table of hyper." not in text
    # Notes are folded with their table, and not repeated.
    assert text.index("On batch.") < text.index("</details>") < text.index("On mali.")
    assert text.count("Said once.") == 1
    assert "Said once." in (space.output("mali") / "table.md").read_text()
    assert "<details" not in (space.output("batch") / "table.md").read_text()


def test_results_of_an_earlier_version_are_not_shown(tmp_path):
    old = {"item": "batch", "scale": "smoke", "tables": [], "notes": [], "curves": {}}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "batch.json").write_text(json.dumps(old))
    text = write_page(Space(tmp_path / "out", "smoke"), tmp_path / "results.md").read_text()
    assert ITEMS["batch"].title not in text


def test_an_unknown_item_is_answered_with_the_nearest(capsys):
    assert main(["paper", "table:acu"]) == 2
    assert "did you mean 'table:accu'" in capsys.readouterr().err


def test_an_unknown_table_has_no_published_values():
    with pytest.raises(ValueError, match="did you mean 'table:runtime'"):
        published("table:runtimes")
