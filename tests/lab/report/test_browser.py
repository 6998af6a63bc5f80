"""The page in a real browser. Screenshots go to the folder that SNOPT_SHOTS names, if any."""

import csv
import json
import math
import os
import time
from importlib.resources import files
from pathlib import Path

import pytest

from snopt.lab.report import write_report
from tests.lab.report.chromium import EXECUTABLE, Browser
from tests.lab.report.fabricate import PICTURES, write_comparison, write_run

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="there is no chromium")

EVIL = "<img src=x onerror=alert(1)>"
CHART = "[data-quantity='valid/accuracy']"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = write_comparison(tmp_path_factory.mktemp("runs"))
    # With two seeds one deviation is cut off at their range.
    write_run(root, "snopt", 2, rate=0.31, per_iteration=0.6, horizon=True)
    write_run(root, "evil", 0, config={"optimizer": EVIL, "label": EVIL}, pictures=PICTURES)
    return write_report([root], root / "report.html", target=0.95)


@pytest.fixture
def page(browser, report):
    browser.prefer("light")
    browser.resize(1280)
    browser.open(report)
    browser.wait_for(f"!!document.querySelector(\"{CHART} [data-series='adam'] .line\")")
    yield browser
    # Whatever a test did: no error, no warning, and no request but for the file itself.
    assert browser.complaints() == []
    asked = {url.partition("?")[0].partition("#")[0] for url in browser.requests()}
    assert {url for url in asked if not url.startswith("blob:")} == {report.as_uri()}


def count(page, selector):
    return page.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")


def text(page, selector):
    return page.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")


def ticks(page, axis, chart=CHART):
    selector = json.dumps(f"{chart} [data-tick='{axis}']")
    return page.evaluate(f"[...document.querySelectorAll({selector})].map(e => e.textContent)")


def test_every_curve_of_every_chart_is_drawn_with_bands(page):
    assert page.evaluate("window.snoptReport.tasks[0].charts.length") == 3
    for name in ("snopt", "adam", "sgd", EVIL):
        assert count(page, f"{CHART} [data-series={json.dumps(name)}] .line") >= 1
    assert count(page, f"{CHART} .band") == 3
    # One seed of SGD was cut off: its curve goes on dotted.
    assert count(page, f"{CHART} [data-series='sgd'] .fewer") == 1
    assert count(page, f"{CHART} [data-series='adam'] .fewer") == 0
    assert "target 0.95" in text(page, f"{CHART} .target")


def test_classes_have_a_legend_in_colours_that_no_curve_has(page):
    entries = "[...document.querySelectorAll('[data-picture=\"paths\"] .classes')]"
    assert page.evaluate(f"{entries}[0].textContent") == "class 0class 1"
    color = "getComputedStyle(document.querySelector('%s')).backgroundColor"
    curves = [page.evaluate(color % f'[data-legend="{name}"] i') for name in ("snopt", "adam")]
    assert page.evaluate(color % ".classes i") not in curves


def test_an_accuracy_axis_ends_at_one_and_bands_of_losses_stay_on_a_logarithmic_axis(page):
    assert ticks(page, "y")[-1] == "1"
    loss = "[data-quantity='training/loss']"
    path = f"document.querySelector(\"{loss} [data-series='adam'] .band\").getAttribute('d')"
    heights = [float(point.split(",")[1]) for point in page.evaluate(path)[1:-1].split("L")]
    assert max(heights) < 239  # The axis is at 240.


def test_the_times_of_the_headline_are_marked_on_the_target(page):
    assert count(page, f"{CHART} [data-reached]") == 3
    assert count(page, f"{CHART} [data-reached='sgd']") == 0  # a seed did not get there
    place = "document.querySelector(\"{} [data-reached='{}']\").getBoundingClientRect().x"
    snopt, adam = (page.evaluate(place.format(CHART, name)) for name in ("snopt", "adam"))
    assert snopt < adam
    assert text(page, ".headline").startswith("Shortest time to valid accuracy ≥ 0.95: snopt")


def test_an_accuracy_axis_starts_where_the_data_are(page, browser):
    code = files("snopt.lab.report").joinpath("static", "scale.js").read_text("utf-8")
    low, high = browser.evaluate(f"(() => {{ {code}\nreturn paddedExtent([0.9, 1], false); }})()")
    assert 0.89 < low < 0.9
    assert high == 1


def test_legend_hides_and_shows_a_curve_in_all_charts(page):
    before = count(page, "[data-series='adam']")
    page.click("[data-legend='adam']")
    assert count(page, "[data-series='adam']") == 0
    assert count(page, "[data-series='snopt']") > 0
    page.click("[data-legend='adam']")
    assert count(page, "[data-series='adam']") == before == 2


def test_the_horizontal_axis_switches_between_seconds_and_iterations(page):
    assert "seconds of training" in text(page, CHART)
    path = f"document.querySelector(\"{CHART} [data-series='adam'] .line\").getAttribute('d')"
    before = page.evaluate(path)
    page.click("[data-axis='iteration']")
    assert "iterations" in text(page, f"{CHART} svg")
    assert ticks(page, "x")[-1] == "40"
    assert page.evaluate(path) != before
    page.click("[data-axis='seconds']")
    assert page.evaluate(path) == before


def test_both_axes_can_be_logarithmic(page):
    assert "0" in ticks(page, "y")
    page.click(f"{CHART} [data-log='y']")
    assert "1" in ticks(page, "y")
    assert "0" not in ticks(page, "y")
    page.click("[data-log='x']")
    shown = ticks(page, "x")
    assert "5" in shown
    assert "0" not in shown
    page.click(f"{CHART} [data-log='y']")
    page.click("[data-log='x']")
    assert "0" in ticks(page, "x")
    assert "0" in ticks(page, "y")


def test_bands_can_be_ranges_or_nothing(page):
    band = f"document.querySelector(\"{CHART} [data-series='snopt'] .band\").getAttribute('d')"
    before = page.evaluate(band)
    page.click("[data-spread='range']")
    assert page.evaluate(band) != before
    page.click("[data-spread='none']")
    assert count(page, ".band") == 0


def test_hovering_reads_the_curves_out(page):
    page.move_over(f"{CHART} .plot", across=0.6)
    assert " s" in text(page, f"{CHART} .tip strong")
    assert "adam" in text(page, f"{CHART} [data-read='adam']")
    value = float(text(page, f"{CHART} [data-read='adam'] b"))
    assert 0.8 < value <= 1.0
    page.move_over("h1")
    assert page.evaluate(f'document.querySelector("{CHART} .tip").hidden')


def test_arrow_keys_read_the_curves_out(page):
    page.evaluate(f'document.querySelector("{CHART} .plot").focus()')
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight")
    assert not page.evaluate(f'document.querySelector("{CHART} .tip").hidden')


def test_another_quantity_can_be_chosen(page):
    page.evaluate(
        f'(() => {{ const s = document.querySelector("{CHART} select"); s.value = '
        "'training/nfe_forward'; s.dispatchEvent(new Event('change')); })()"
    )
    chart = "[data-quantity='training/nfe_forward']"
    assert count(page, f"{chart} [data-series='adam'] .line") >= 1
    assert "15" in ticks(page, "y", chart)


def test_pictures_are_drawn_and_paths_follow_the_slider(page):
    ink = (
        "(() => {{ const c = document.querySelector('[data-picture={}] canvas');"
        " const copy = new OffscreenCanvas(c.width, c.height).getContext('2d');"
        " copy.drawImage(c, 0, 0);"
        " const d = copy.getImageData(0, 0, c.width, c.height).data;"
        " return d.filter((v, i) => i % 4 === 3 && v > 0).length; }})()"
    )
    for kind in ("points", "paths", "grid"):
        assert page.evaluate(ink.format(kind)) > 20
    move = (
        "(() => {{ const s = document.querySelector('[data-picture=paths] input'); s.value = {};"
        " s.dispatchEvent(new Event('input')); }})()"
    )
    page.evaluate(move.format(1))
    whole = page.evaluate(ink.format("paths"))
    page.evaluate(move.format(0.1))
    assert page.evaluate(ink.format("paths")) < whole


def test_films_open_the_task_and_play_to_their_end(page):
    assert (
        page.evaluate(
            "document.querySelector('[data-films] [data-picture=paths]')"
            ".compareDocumentPosition(document.querySelector('[data-charts]'))"
        )
        & 4
    )  # the charts follow
    where = "Number(document.querySelector('[data-picture=paths] input').value)"
    page.evaluate("document.querySelector('[data-picture=paths] [data-play]').click()")
    deadline = time.monotonic() + 30
    while page.evaluate(where) == 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert page.evaluate(where) < 1
    while page.evaluate(where) < 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert page.evaluate(where) == 1


def set_smoothing(page, percent):
    page.evaluate(
        f"(() => {{ const s = document.querySelector('[data-smooth]'); s.value = {percent};"
        " s.dispatchEvent(new Event('input')); })()"
    )


def test_smoothing_averages_the_curves_and_keeps_the_recorded_ones_behind(page):
    path = f"document.querySelector(\"{CHART} [data-series='adam'] .line\").getAttribute('d')"
    before = page.evaluate(path)
    set_smoothing(page, 30)
    assert page.evaluate(path) != before
    raw = path.replace(".line", ".raw")
    assert page.evaluate(raw) == before
    set_smoothing(page, 0)
    assert page.evaluate(path) == before
    assert count(page, ".raw") == 0


def test_a_link_shows_the_view_again(page, report):
    for selector in ("[data-axis='iteration']", "[data-log='x']", "[data-spread='range']"):
        page.click(selector)
    page.click("[data-legend='adam']")
    page.click(f"{CHART} [data-log='y']")
    set_smoothing(page, 12)
    choose(page, "[data-quantity='training/horizon'] select", "training/nfe_forward")
    link = page.evaluate("location.href")
    seen = "document.querySelector('[data-charts]').innerHTML"
    before = page.evaluate(seen)
    page.call("Page.navigate", url=f"{report.as_uri()}?again{link[link.index('#') :]}")
    page.wait_for("location.search === '?again' && document.readyState === 'complete'")
    page.wait_for("!!document.querySelector(\"[data-series='snopt'] .line\")")
    assert page.evaluate(seen) == before
    assert page.evaluate("document.querySelector('[data-smooth]').value") == "12"
    assert count(page, "[data-series='adam']") == 0
    page.evaluate("void (location.hash = '')")
    page.wait_for("!!document.querySelector(\"[data-series='adam'] .line\")")
    assert "seconds of training" in text(page, CHART)


def test_a_wrong_link_shows_the_usual_view(page, report):
    junk = "0.axis=north&0.spread=all&0.smooth=-3&0.hide=99.x&0.show=77.-1&compare=8.zz&9.axis=x"
    page.evaluate(f"void (location.hash = '{junk}')")
    page.wait_for("!!document.querySelector(\"[data-series='adam'] .line\")")
    assert "seconds of training" in text(page, CHART)
    assert page.evaluate("document.querySelector('[data-smooth]').value") == "0"


def test_two_runs_are_compared_by_the_settings_that_differ(page):
    assert "same settings" not in text(page, "[data-differing]")
    rows = "[...document.querySelectorAll('[data-differing] tr')].map(r => r.cells[0].textContent)"
    assert page.evaluate(rows) == ["setting", "seed", "train.seed"]
    choose(page, "[data-settings] select:last-of-type", "4")
    assert page.evaluate(rows) == ["setting", "optimizer"]
    assert "compare=0.4" in page.evaluate("location.hash")
    choose(page, "[data-settings] select:last-of-type", "0")
    assert "same settings" in text(page, "[data-differing]")


def choose(page, selector, value):
    page.evaluate(
        f"(() => {{ const s = document.querySelector({json.dumps(selector)});"
        f" s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()"
    )


def saved(page, tmp_path, selector):
    """The rows of the file that a button saves."""
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click(selector)
    deadline = time.monotonic() + 30
    while not (found := list(tmp_path.glob("*.csv"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with found[0].open(newline="", encoding="utf-8") as file:
        return found[0].name, list(csv.reader(file))


def test_the_numbers_of_a_chart_can_be_saved(page, tmp_path):
    set_smoothing(page, 30)  # which is no part of the data
    name, (head, *rows) = saved(page, tmp_path, f"{CHART} [data-csv]")
    assert name == "spirals-valid-accuracy.csv"
    columns = ["iteration", "seconds", "mean", "below", "above", "low", "high", "count"]
    assert head == ["optimizer", *columns]
    adam = [dict(zip(head, row, strict=True)) for row in rows if row[0] == "adam"]
    assert [float(row["iteration"]) for row in adam] == list(range(0, 41, 5))
    assert float(adam[1]["low"]) == pytest.approx(1 - math.exp(-0.75), rel=1e-5)
    assert {row["count"] for row in adam} == {"2"}
    assert {row[0] for row in rows} == {"snopt", "adam", "sgd", EVIL}


def test_the_numbers_of_a_picture_can_be_saved(page, tmp_path):
    name, rows = saved(page, tmp_path, "[data-picture='points'] [data-csv]")
    assert name == "spirals-snopt-x-1.csv"
    assert rows == [["x", "y", "class"], ["0", "0", "0"], ["1", "2", "1"]]


def test_a_table_stands_in_for_each_chart(page):
    page.click(f"{CHART} .numbers summary")
    page.wait_for(f'!!document.querySelector("{CHART} .numbers table")')
    cells = f'[...document.querySelectorAll("{CHART} .numbers tr")].map(r => r.cells.length)'
    assert set(page.evaluate(cells)) == {5}
    assert text(page, f"{CHART} .numbers thead") == f"seconds of trainingsnopt{EVIL}adamsgd"
    page.click("[data-axis='iteration']")
    assert text(page, f"{CHART} .numbers thead").startswith("iterations")


def test_everything_is_reached_by_the_tab_key_and_has_a_name(page):
    reached = []
    for _ in range(200):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        now = page.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return null;"
            " const o = getComputedStyle(e).outlineStyle;"
            " return [e.className || e.tagName, o, e.ariaLabel || e.textContent.trim()]; })()"
        )
        if now is None:
            break
        reached.append(now)
    kinds = {kind for kind, _, _ in reached}
    assert {"plot", "scroll", "SELECT", "INPUT", "BUTTON", "SUMMARY"} <= kinds
    assert all(outline != "none" and name for _, outline, name in reached)


def test_charts_and_pictures_are_described_in_words(page):
    label = page.evaluate(f'document.querySelector("{CHART} .plot").ariaLabel')
    assert label.startswith("valid accuracy against seconds of training; snopt from 0 to 1")
    assert "target 0.95, snopt at" in label
    names = page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.ariaLabel)")
    assert "snopt x(t): 2 paths over time of 2 classes" in names
    best = "[...document.querySelectorAll('td.best')].every(c => c.textContent.includes('(best)'))"
    assert count(page, "td.best") > 0
    assert page.evaluate(best)


def test_print_is_light_without_controls_and_fits_the_paper(page):
    page.prefer("dark")
    page.call(
        "Emulation.setEmulatedMedia",
        media="print",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    page.resize(720)
    color = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 36, 48)"
    for selector in (".controls .toolbar", "[data-csv]", "[data-settings]"):
        shown = f"document.querySelector('{selector}').checkVisibility()"
        assert not page.evaluate(shown)
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    page.call("Emulation.setEmulatedMedia", media="", features=[])


def test_names_are_not_run_as_markup(page):
    assert count(page, "img") == 0
    assert text(page, f"[data-legend={json.dumps(EVIL)}]") == EVIL


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_page_fits_its_window_in_both_schemes(page, tmp_path, scheme, width):
    page.prefer(scheme)
    page.resize(width)
    page.wait_for(
        f'document.querySelector("{CHART} svg").clientWidth'
        f' === document.querySelector("{CHART} .plot").clientWidth'
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    bright = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(bright) > 128) == (scheme == "light")
    shots = Path(os.environ.get("SNOPT_SHOTS", tmp_path))
    page.resize(width, page.evaluate("document.documentElement.scrollHeight"))
    page.screenshot(shots / f"report-{scheme}-{width}.png")
    assert (shots / f"report-{scheme}-{width}.png").stat().st_size > 20_000


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("linearTicks(0, 1, 5)", [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ("linearTicks(-3.2, 7, 5)", [0, 5]),
        ("linearTicks(2, 2, 5)", [2]),
        ("logTicks(0.001, 1000, 6)", [0.001, 0.01, 0.1, 1, 10, 100, 1000]),
        ("logTicks(1, 30, 6)", [1, 2, 5, 10, 20]),
        ("logTicks(1e-12, 1, 4)", [1e-12, 1e-9, 1e-6, 1e-3, 1]),
        ("numberText(0.000012)", "1.2·10⁻⁵"),
        ("numberText(1e6)", "10⁶"),
        ("numberText(123456)", "123\u2009456"),
        ("numberText(-0.25)", "−0.25"),
        ("numberText(null)", "–"),
        ("extentOf([3, null, 1], false)", [1, 3]),
        ("extentOf([], true)", [1, 10]),
        ("extentOf([-1, 2, 8], true)", [2, 8]),
        ("makeScale(1, 100, 0, 10, true).scale(10)", 5),
        ("makeScale(1, 100, 0, 10, true).inverse(5)", 10),
        ("smoothed([0, 1, 2, 3, 4], [0, 3, 0, 3, 0], 50)", [1.5, 1, 2, 1, 1.5]),
        ("smoothed([0, 1, 2], [1, null, 3], 100)", [1, None, 3]),
        ("smoothed([0, 1, 2], [1e300, 1, 2], 20)", [1e300, 1, 2]),
        ("smoothed([0, 1, 2], [4, 5, 6], 0)", [4, 5, 6]),
    ],
)
def test_scales_and_ticks(browser, call, expected):
    code = files("snopt.lab.report").joinpath("static", "scale.js").read_text("utf-8")
    assert browser.evaluate(f"(() => {{ {code}\nreturn {call}; }})()") == expected
