import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from snopt.lab.optimizers.registry import OPTIMIZERS, PALETTE, color_index
from snopt.lab.report import build_html, read_runs
from snopt.lab.report.figures import CLASS_PALETTE
from tests.lab.report.fabricate import PICTURES, lines_of, write_comparison, write_run

EVIL = "</script><img src=x onerror=alert(1)>\"'&<!--"


class Reader(HTMLParser):
    """Collects tags, attributes, and the text of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.raw, self.inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self.inside = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.raw.append((self.inside, data))


def data_of(page):
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page)
    return json.loads(found.group(1))


@pytest.fixture
def evil_page(tmp_path):
    folder = write_run(
        tmp_path,
        config={"task": EVIL, "optimizer": EVIL, EVIL: EVIL},
        pictures={"p": {**PICTURES["points"], "title": EVIL}},
        lines=[*lines_of()[:-1], {"kind": "end", "status": EVIL, "message": EVIL}],
    )
    (folder / "environment.json").write_text(json.dumps({"command": EVIL, "device": EVIL}))
    return build_html(read_runs([folder, tmp_path / EVIL.replace("/", "")]), EVIL)


def test_names_are_text_wherever_they_come_from(evil_page):
    reader = Reader(evil_page)
    assert "img" not in reader.tags
    assert not any(name.startswith("on") for name, _ in reader.attributes)
    assert reader.tags.count("script") == 2
    assert data_of(evil_page)["tasks"][0]["groups"][0]["label"] == EVIL


def test_page_names_no_address_and_its_policy_allows_its_own_script_alone(tmp_path):
    page = build_html(read_runs([write_comparison(tmp_path)]), "title")
    reader = Reader(page)
    assert not {"link", "img", "iframe", "object", "base"} & set(reader.tags)
    assert not {"src", "href", "style"} & {name for name, _ in reader.attributes}
    # The name space of SVG is the one address, and nothing is ever asked of it.
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert policy.startswith("default-src 'none'")
    [style] = [text for tag, text in reader.raw if tag == "style"]
    _, script = (text for tag, text in reader.raw if tag == "script")
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_data_hold_curves_charts_target_and_pictures(tmp_path):
    [task] = data_of(build_html(read_runs([write_comparison(tmp_path)]), "title"))["tasks"]
    assert task["charts"] == ["training/loss", "valid/accuracy", "training/horizon"]
    assert task["targetQuantity"] == "valid/accuracy"
    assert [group["label"] for group in task["groups"]] == ["snopt", "adam", "sgd"]
    assert len({group["color"] for group in task["groups"]}) == 3
    curve = task["groups"][0]["curves"]["valid/accuracy"]
    assert curve["iteration"] == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    assert {len(values) for values in curve.values()} == {9}
    # How many seeds there are is told where it is not all of them.
    assert "count" not in curve
    assert set(task["groups"][2]["curves"]["valid/accuracy"]["count"]) == {1, 2}
    kinds = [picture["kind"] for picture in task["pictures"]]
    assert kinds == 3 * ["grid", "paths", "paths", "points"]


def test_a_horizon_that_is_not_learned_has_no_chart(tmp_path):
    lines = [line | ({"horizon": [1.0]} if line["kind"] == "step" else {}) for line in lines_of()]
    write_run(tmp_path, lines=lines)
    [task] = data_of(build_html(read_runs([tmp_path]), "title"))["tasks"]
    assert task["charts"] == ["training/loss", "valid/accuracy"]
    assert "training/horizon" in [quantity["key"] for quantity in task["quantities"]]


def test_a_label_has_one_colour_in_all_tasks(tmp_path):
    write_run(tmp_path, "sgd", task="a")
    write_run(tmp_path, "adam", task="b")
    write_run(tmp_path, "sgd", task="b")
    tasks = data_of(build_html(read_runs([tmp_path]), "title"))["tasks"]
    colors = [{group["label"]: group["color"] for group in task["groups"]} for task in tasks]
    assert colors == [{"sgd": 4}, {"adam": 2, "sgd": 4}]


def test_an_optimizer_has_one_colour_on_all_pages(tmp_path):
    for name in ("adam", "snopt", "muon"):
        write_run(tmp_path / "many", name)
    write_run(tmp_path / "one", "muon")
    write_run(tmp_path / "one", "mine")

    def colors(folder):
        [task] = data_of(build_html(read_runs([folder]), "title"))["tasks"]
        return {group["label"]: group["color"] for group in task["groups"]}

    many, one = colors(tmp_path / "many"), colors(tmp_path / "one")
    assert many["muon"] == one["muon"]
    assert len({*many.values()}) == 3
    write_run(tmp_path / "many", "mine")
    assert colors(tmp_path / "many")["mine"] == one["mine"]
    assert one["mine"] not in map(color_index, OPTIMIZERS)


def test_more_labels_than_colours_are_drawn(tmp_path):
    for k in range(40):
        write_run(tmp_path, f"mine{k}", iterations=5)
    for k in range(3):
        write_run(tmp_path / str(k), "adam", config={"lr": k}, iterations=5)
    [task] = data_of(build_html(read_runs([tmp_path]), "title"))["tasks"]
    colors = {group["label"]: group["color"] for group in task["groups"]}
    assert len(colors) == 43
    assert {*colors.values()} == {*range(2 * len(PALETTE))}


def test_the_page_and_the_registry_have_the_same_colours():
    style = files("snopt.lab.report").joinpath("static", "report.css").read_text("utf-8")
    light = style.split("@media")[0]
    for letter, palette in (("c", PALETTE), ("k", CLASS_PALETTE)):
        assert re.findall(rf"--{letter}\d: (#\w+)", light) == list(palette)
    assert not set(PALETTE) & set(CLASS_PALETTE)


def test_problems_commands_and_configs_are_on_the_page(tmp_path):
    page = build_html(read_runs([write_comparison(tmp_path), tmp_path / "nowhere"]), "title")
    assert "data-problems" in page
    assert "no such folder" in page
    assert "snopt train spirals --optimizer sgd" in page
    assert '"metric": "accuracy"' in unescape(page)


def test_what_is_not_finite_becomes_null(tmp_path):
    lines = lines_of(iterations=3)
    lines[2]["loss"] = 1e200
    write_run(tmp_path, "adam", 0, lines=lines)
    for line in lines:
        line["loss"] = -1e200
    write_run(tmp_path, "adam", 1, lines=lines)
    page = build_html(read_runs([tmp_path]), "title")
    curve = data_of(page)["tasks"][0]["groups"][0]["curves"]["training/loss"]
    assert curve["below"][0] == -1e200


@pytest.mark.parametrize("value", [1e308, -1e308, 1.7e308])
@pytest.mark.parametrize("key", ["loss", "seconds", "lr", "metrics", "final", "until"])
def test_values_near_overflow_can_be_reported(tmp_path, key, value):
    for seed in range(3):
        lines = lines_of(iterations=20)
        for line in lines:
            if key in line:
                line[key] = {"metrics": {"accuracy": value, "loss": -value}}.get(key, value)
        if key == "final":
            lines[-1]["final"] = {"test": {"accuracy": value}}
        until = {"until": ["accuracy", value]} if key == "until" else {}
        write_run(tmp_path, "adam", seed, lines=lines, config={"train": {"seed": seed, **until}})
    page = build_html(read_runs([tmp_path]), "title")
    assert data_of(page)["tasks"][0]["name"] == "spirals"


def test_no_run_makes_a_page_that_says_so():
    assert "There is no run to report." in build_html([], "title")
