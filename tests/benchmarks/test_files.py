"""Results beside others, tables in their places, and pages that are as their results say."""

import pytest

from benchmarks.files import DOCS, RESULTS, keep, put, read
from snopt.lab.table import markdown


def test_results_are_added_beside_the_others(tmp_path):
    file = tmp_path / "results" / "peers.json"
    keep(file, {"rounds": 3}, "engines", "image")
    keep(file, {"rounds": 5}, "engines", "ode_rnn")
    keep(file, {"megabytes": {}}, "memory")
    keep(file, {"rounds": 7}, "engines", "image")
    found = read(file)
    assert {name: each["rounds"] for name, each in found["engines"].items()} == {
        "image": 7,
        "ode_rnn": 5,
    }
    assert found["memory"]["megabytes"] == {}
    assert "torch" in found["memory"]["environment"]["packages"]


def test_table_is_put_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- /a -->\nafter\n")
    put(page, {"a": markdown(["x", "y"], [["1", "2"]])})
    assert page.read_text() == (
        "before\n<!-- a -->\n\n| x | y |\n| --- | ---: |\n| 1 | 2 |\n\n<!-- /a -->\nafter\n"
    )


def test_page_without_a_place_is_refused_and_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(ValueError, match="no place for the table 'a'"):
        put(page, {"a": "table"})
    assert page.read_text() == "nothing here\n"


def stored_tables():
    pytest.importorskip("matplotlib")
    from benchmarks.engine import choosing
    from benchmarks.optimizer import scaling_fit
    from benchmarks.peers import page
    from benchmarks.theory import horizon

    return {
        "peers": page.tables(page.stored()),
        "solving": choosing.tables(read(RESULTS / "choosing.json")),
        "scaling": scaling_fit.tables(read(RESULTS / "scaling.json")),
        "theory/horizon": {"images": horizon.table(read(RESULTS / "horizon.json")["runs"])},
    }


@pytest.mark.parametrize("page", ["peers", "solving", "scaling", "theory/horizon"])
def test_page_has_the_tables_of_its_results(page):
    text = (DOCS / f"{page}.md").read_text("utf-8")
    for name, table in stored_tables()[page].items():
        assert f"<!-- {name} -->\n\n{table}\n\n<!-- /{name} -->" in text
