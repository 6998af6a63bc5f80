"""The page in a real browser. Screenshots go to the folder that SNOPT_SHOTS names, if any."""

import json
import os
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
    assert browser.requests() == [report.as_uri()]


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
    assert "target 0.95" in text(page, f"{CHART} .axes")


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
    whole = page.evaluate(ink.format("paths"))
    page.evaluate(
        "(() => { const s = document.querySelector('[data-picture=paths] input'); s.value = 0.1;"
        " s.dispatchEvent(new Event('input')); })()"
    )
    assert page.evaluate(ink.format("paths")) < whole


def test_names_are_not_run_as_markup(page):
    assert count(page, "img") == 0
    assert text(page, f"[data-legend={json.dumps(EVIL)}]") == EVIL


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
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
    ],
)
def test_scales_and_ticks(browser, call, expected):
    code = files("snopt.lab.report").joinpath("static", "scale.js").read_text("utf-8")
    assert browser.evaluate(f"(() => {{ {code}\nreturn {call}; }})()") == expected
