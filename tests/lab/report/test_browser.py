"""The page in a real browser. Screenshots go to the folder that SNOPT_SHOTS names, if any."""

import csv
import json
import math
import os
from pathlib import Path

import pytest

from snopt.lab.report import write_report
from tests.lab.report.fabricate import PICTURES, write_comparison, write_run

EVIL = "<img src=x onerror=alert(1)>"
CHART = "[data-quantity='valid/accuracy']"
ADAM = f"{CHART} [data-series='adam'] .line"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = write_comparison(tmp_path_factory.mktemp("runs"))
    # With two seeds one deviation is cut off at their range.
    points = {"points": PICTURES["points"]}
    write_run(root, "snopt", 2, rate=0.31, per_iteration=0.6, horizon=True, pictures=points)
    write_run(root, "evil", 0, config={"optimizer": EVIL, "label": EVIL}, pictures=PICTURES)
    return write_report([root], root / "report.html", target=0.95)


@pytest.fixture
def page(browser, report):
    size = {"width": 1280, "height": 900}
    page = browser.new_page(color_scheme="light", viewport=size)
    page.set_default_timeout(60_000)
    complaints, asked = [], set()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console", lambda said: said.type in ("error", "warning") and complaints.append(said.text)
    )
    page.on("request", lambda request: asked.add(request.url.partition("?")[0].partition("#")[0]))
    page.goto(report.as_uri())
    page.wait_for_selector(ADAM, state="attached")
    yield page
    page.close()
    # Whatever a test did: no error, no warning, and no request but for the file itself.
    assert complaints == []
    assert {url for url in asked if not url.startswith("blob:")} == {report.as_uri()}


def count(page, selector):
    return page.locator(selector).count()


def text(page, selector):
    return page.locator(selector).first.text_content()


def shape(page, selector):
    """What a path of a chart draws."""
    return page.locator(selector).first.get_attribute("d")


def wait_for(page, condition):
    """Playwright's own wait evaluates strings in the page, which its policy forbids."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")


def resize(page, width):
    page.set_viewport_size({"width": width, "height": 900})


def ticks(page, axis, chart=CHART):
    return page.locator(f"{chart} [data-tick='{axis}']").all_text_contents()


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
    path = shape(page, f"{loss} [data-series='adam'] .band")
    heights = [float(point.split(",")[1]) for point in path[1:-1].split("L")]
    assert max(heights) < 239  # The axis is at 240.


def test_the_times_of_the_headline_are_marked_on_the_target(page):
    assert count(page, f"{CHART} [data-reached]") == 3
    assert count(page, f"{CHART} [data-reached='sgd']") == 0  # a seed did not get there
    snopt, adam = (
        page.locator(f"{CHART} [data-reached='{name}']").bounding_box()["x"]
        for name in ("snopt", "adam")
    )
    assert snopt < adam
    assert text(page, ".headline").startswith("Shortest time to valid accuracy ≥ 0.95: snopt")


def test_legend_hides_and_shows_a_curve_in_all_charts(page):
    before = count(page, "[data-series='adam']")
    page.click("[data-legend='adam']")
    assert count(page, "[data-series='adam']") == 0
    assert count(page, "[data-series='snopt']") > 0
    page.click("[data-legend='adam']")
    assert count(page, "[data-series='adam']") == before == 2


def test_the_horizontal_axis_switches_between_seconds_and_iterations(page):
    assert "seconds of training" in text(page, CHART)
    before = shape(page, ADAM)
    page.click("[data-axis='iteration']")
    assert "iterations" in text(page, f"{CHART} svg")
    assert ticks(page, "x")[-1] == "40"
    assert shape(page, ADAM) != before
    page.click("[data-axis='seconds']")
    assert shape(page, ADAM) == before


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
    band = f"{CHART} [data-series='snopt'] .band"
    before = shape(page, band)
    page.click("[data-spread='range']")
    assert shape(page, band) != before
    page.click("[data-spread='none']")
    assert count(page, ".band") == 0


def test_hovering_reads_the_curves_out(page):
    box = page.locator(f"{CHART} .plot").bounding_box()
    page.hover(f"{CHART} .plot", position={"x": 0.6 * box["width"], "y": box["height"] / 2})
    assert " s" in text(page, f"{CHART} .tip strong")
    assert "adam" in text(page, f"{CHART} [data-read='adam']")
    value = float(text(page, f"{CHART} [data-read='adam'] b"))
    assert 0.8 < value <= 1.0
    page.hover("h1")
    assert page.locator(f"{CHART} .tip").is_hidden()


def test_arrow_keys_read_the_curves_out(page):
    page.press(f"{CHART} .plot", "ArrowRight")
    assert page.locator(f"{CHART} .tip").is_visible()


def test_another_quantity_can_be_chosen(page):
    page.select_option(f"{CHART} select", "training/nfe_forward")
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
    page.locator("[data-picture=paths] input").first.fill("1")
    whole = page.evaluate(ink.format("paths"))
    page.locator("[data-picture=paths] input").first.fill("0.1")
    assert page.evaluate(ink.format("paths")) < whole


def test_pictures_of_other_seeds_are_shown_on_request(page):
    others = page.locator("[data-other-pictures] [data-picture]")
    assert others.first.is_hidden()
    page.click("[data-other-pictures] summary")
    assert others.first.is_visible()
    assert others.all_text_contents() == ["snopt, seed 2 x(1)CSVclass 0class 1"]


def test_a_film_shows_the_density_of_its_time(page):
    film = page.locator("[data-picture=paths]", has_text="p(t)").first
    canvas = film.locator("canvas")
    ink = (
        "(c, x) => { const copy = new OffscreenCanvas(c.width, c.height).getContext('2d');"
        " copy.drawImage(c, 0, 0);"
        " return copy.getImageData(x * c.width, 0.8 * c.height, 1, 1).data[3]; }"
    )
    for time, dense, empty in (("0", 0.2, 0.8), ("1", 0.8, 0.2)):  # it moves to the right
        film.locator("input").fill(time)
        assert canvas.evaluate(ink, dense) > 50 > canvas.evaluate(ink, empty)
    assert "over their density" in canvas.get_attribute("aria-label")


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
    wait_for(page, f"{where} < 1")
    wait_for(page, f"{where} === 1")


def set_smoothing(page, percent):
    page.fill("[data-smooth]", str(percent))


def test_smoothing_averages_the_curves_and_keeps_the_recorded_ones_behind(page):
    before = shape(page, ADAM)
    set_smoothing(page, 30)
    assert shape(page, ADAM) != before
    assert shape(page, ADAM.replace(".line", ".raw")) == before
    set_smoothing(page, 0)
    assert shape(page, ADAM) == before
    assert count(page, ".raw") == 0


def test_a_link_shows_the_view_again(page, report):
    for selector in ("[data-axis='iteration']", "[data-log='x']", "[data-spread='range']"):
        page.click(selector)
    page.click("[data-legend='adam']")
    page.click(f"{CHART} [data-log='y']")
    set_smoothing(page, 12)
    page.select_option("[data-quantity='training/horizon'] select", "training/nfe_forward")
    before = page.inner_html("[data-charts]")
    page.goto(f"{report.as_uri()}?again{page.url[page.url.index('#') :]}")
    page.wait_for_selector("[data-series='snopt'] .line", state="attached")
    assert page.inner_html("[data-charts]") == before
    assert page.input_value("[data-smooth]") == "12"
    assert count(page, "[data-series='adam']") == 0
    page.evaluate("void (location.hash = '')")
    page.wait_for_selector(ADAM, state="attached")
    assert "seconds of training" in text(page, CHART)


def test_a_wrong_link_shows_the_usual_view(page, report):
    junk = "0.axis=north&0.spread=all&0.smooth=-3&0.hide=99.x&0.show=77.-1&compare=8.zz&9.axis=x"
    page.evaluate(f"void (location.hash = '{junk}')")
    page.wait_for_selector(ADAM, state="attached")
    assert "seconds of training" in text(page, CHART)
    assert page.input_value("[data-smooth]") == "0"


def test_two_runs_are_compared_by_the_settings_that_differ(page):
    assert "same settings" not in text(page, "[data-differing]")
    rows = "[...document.querySelectorAll('[data-differing] tr')].map(r => r.cells[0].textContent)"
    assert page.evaluate(rows) == ["setting", "seed", "train.seed"]
    page.select_option("[data-settings] select:last-of-type", "4")
    assert page.evaluate(rows) == ["setting", "optimizer"]
    assert "compare=0.4" in page.url
    page.select_option("[data-settings] select:last-of-type", "0")
    assert "same settings" in text(page, "[data-differing]")


def saved(page, selector):
    """The name and the rows of the file that a button saves."""
    with page.expect_download() as found:
        page.locator(selector).first.click()
    with Path(found.value.path()).open(newline="", encoding="utf-8") as file:
        return found.value.suggested_filename, list(csv.reader(file))


def test_the_numbers_of_a_chart_can_be_saved(page):
    set_smoothing(page, 30)  # which is no part of the data
    name, (head, *rows) = saved(page, f"{CHART} [data-csv]")
    assert name == "spirals-valid-accuracy.csv"
    columns = ["iteration", "seconds", "mean", "below", "above", "low", "high", "count"]
    assert head == ["optimizer", *columns]
    adam = [dict(zip(head, row, strict=True)) for row in rows if row[0] == "adam"]
    assert [float(row["iteration"]) for row in adam] == list(range(0, 41, 5))
    assert float(adam[1]["low"]) == pytest.approx(1 - math.exp(-0.75), rel=1e-5)
    assert {row["count"] for row in adam} == {"2"}
    assert {row[0] for row in rows} == {"snopt", "adam", "sgd", EVIL}


def test_the_numbers_of_a_picture_can_be_saved(page):
    name, rows = saved(page, "[data-picture='points'] [data-csv]")
    assert name == "spirals-snopt-x-1.csv"
    assert rows == [["x", "y", "class"], ["0", "0", "0"], ["1", "2", "1"]]


def test_a_table_stands_in_for_each_chart(page):
    page.click(f"{CHART} .numbers summary")
    page.wait_for_selector(f"{CHART} .numbers table")
    cells = f'[...document.querySelectorAll("{CHART} .numbers tr")].map(r => r.cells.length)'
    assert set(page.evaluate(cells)) == {5}
    assert text(page, f"{CHART} .numbers thead") == f"seconds of trainingsnopt{EVIL}adamsgd"
    page.click("[data-axis='iteration']")
    assert text(page, f"{CHART} .numbers thead").startswith("iterations")


def test_everything_is_reached_by_the_tab_key_and_has_a_name(page):
    reached = []
    for _ in range(200):
        page.keyboard.press("Tab")
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
    label = page.get_attribute(f"{CHART} .plot", "aria-label")
    assert label.startswith("valid accuracy against seconds of training; snopt from 0 to 1")
    assert "target 0.95, snopt at" in label
    names = page.evaluate("[...document.querySelectorAll('canvas')].map(c => c.ariaLabel)")
    assert "snopt x(t): 2 paths over time of 2 classes" in names
    best = "[...document.querySelectorAll('td.best')].every(c => c.textContent.includes('(best)'))"
    assert count(page, "td.best") > 0
    assert page.evaluate(best)


def test_print_is_light_without_controls_and_fits_the_paper(page):
    page.emulate_media(media="print", color_scheme="dark")
    resize(page, 720)
    color = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(color) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 36, 48)"
    for selector in (".controls .toolbar", "[data-csv]", "[data-settings]"):
        assert page.locator(selector).first.is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 720


def test_names_are_not_run_as_markup(page):
    assert count(page, "img") == 0
    assert text(page, f"[data-legend={json.dumps(EVIL)}]") == EVIL


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 420])
def test_page_fits_its_window_in_both_schemes(page, tmp_path, scheme, width):
    page.emulate_media(color_scheme=scheme)
    resize(page, width)
    wait_for(
        page,
        f'document.querySelector("{CHART} svg").clientWidth'
        f' === document.querySelector("{CHART} .plot").clientWidth',
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    bright = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(bright) > 128) == (scheme == "light")
    shots = Path(os.environ.get("SNOPT_SHOTS", tmp_path))
    page.screenshot(path=shots / f"report-{scheme}-{width}.png", full_page=True)
    assert (shots / f"report-{scheme}-{width}.png").stat().st_size > 20_000


def test_a_long_name_does_not_widen_the_page(browser, tmp_path):
    for name in ("adam", "a" * 80):
        write_run(tmp_path, name, task="t" * 80)
    page = browser.new_page(viewport={"width": 420, "height": 900})
    page.goto(write_report([tmp_path], tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    page.close()
