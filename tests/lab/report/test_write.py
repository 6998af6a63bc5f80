import builtins
import re
import xml.etree.ElementTree as ET

import pytest

from snopt.base.errors import UnknownName
from snopt.lab.report import compare, read_runs, write_figures, write_report
from snopt.lab.report.markdown import plain
from tests.lab.report.fabricate import PICTURES, write_comparison, write_run


def test_html_is_written_into_a_folder_that_need_not_be_there(tmp_path):
    out = write_report([write_comparison(tmp_path / "runs")], tmp_path / "new" / "r.html")
    text = out.read_text("utf-8")
    assert "<h1>Training runs: spirals</h1>" in text
    assert text.endswith("</html>\n")


def test_markdown_has_the_tables_of_the_page_and_figures_that_exist(tmp_path):
    root = write_comparison(tmp_path / "runs")
    out = write_report([root], tmp_path / "my report.md", "markdown", title="T", target=0.7)
    text = out.read_text("utf-8")
    assert text.startswith("# T\n")
    assert "| optimizer | seeds | final test accuracy |" in text
    assert "Shortest time to valid accuracy ≥ 0.7: snopt" in text
    assert "snopt train spirals --optimizer sgd" in text
    assert "is incomplete" in text
    links = re.findall(r"!\[spirals\]\(([^)]*)\)", text)
    assert links == [f"my%20report_figures/1-spirals-{kind}.png" for kind in ("curves", "pictures")]
    for link in links:
        data = (tmp_path / link.replace("%20", " ")).read_bytes()
        assert data.startswith(b"\x89PNG")


def test_markdown_without_matplotlib_has_its_tables_and_says_what_is_missing(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    root = write_comparison(tmp_path / "runs")
    text = write_report([root], tmp_path / "r.md", "markdown").read_text("utf-8")
    assert "| optimizer |" in text
    assert "pip install 'snopt[lab]'" in text


def test_figures_take_any_name_for_text(tmp_path):
    names = ["_hidden", r"$\frac$", "<b>&", "a" * 80]
    for k, name in enumerate(names):
        config = {"optimizer": name, "task": "../$x$/<y>"}
        write_run(tmp_path, "any", k, config=config, pictures=PICTURES)
    comparisons = compare(read_runs([tmp_path]))
    [paths] = write_figures(comparisons, tmp_path / "figures", "svg").values()
    assert [path.name for path in paths] == ["1-x-y-curves.svg", "1-x-y-pictures.svg"]
    texts = "".join(ET.parse(paths[0]).getroot().itertext())
    assert all(name in texts for name in names)


def test_the_legend_of_a_figure_has_the_order_of_the_tables(tmp_path):
    for k in range(2):
        write_run(tmp_path / str(k), "snopt", config={"lr": k})
    write_run(tmp_path, "adam")
    [[path]] = write_figures(compare(read_runs([tmp_path])), tmp_path / "f", "svg").values()
    texts = [text.strip() for text in ET.parse(path).getroot().itertext()]
    assert [text for text in texts if text.startswith(("snopt", "adam"))] == [
        "snopt lr=0", "snopt lr=1", "adam",
    ]  # fmt: skip


def test_a_loss_over_decades_has_a_logarithmic_axis_as_on_the_page(tmp_path):
    write_run(tmp_path, rate=0.3)  # the loss falls to exp(-12)
    [[path]] = write_figures(compare(read_runs([tmp_path])), tmp_path / "f", "svg").values()
    texts = [text for text in ET.parse(path).getroot().itertext() if text.strip()]
    assert {"0.0001", "0.01", "1"} <= set(texts)


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'markdown'"):
        write_report([tmp_path], tmp_path / "r", "markdwon")
    with pytest.raises(UnknownName, match="did you mean 'svg'"):
        write_figures([], tmp_path, "svgz")


def test_a_folder_name_that_is_not_unicode_is_no_obstacle(tmp_path):
    folder = write_run(tmp_path, "adam", 0)
    (folder / "config.json").unlink()
    folder = folder.rename(folder.parent / "b\udcffd")
    out = write_report([folder], tmp_path / "r.html")
    assert "b?d" in out.read_text("utf-8")


def test_markdown_text_cannot_become_markup():
    assert plain("a|b\n`c` <i>") == r"a\|b \`c\` &lt;i>"
