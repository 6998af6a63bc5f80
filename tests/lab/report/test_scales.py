"""Scales, ticks and numbers of the page's charts, in the browser."""

from importlib.resources import files

import pytest


@pytest.fixture(scope="module")
def scales(browser):
    """Evaluate a call of a function in scale.js."""
    code = files("snopt.lab.report").joinpath("static", "scale.js").read_text("utf-8")
    page = browser.new_page()
    yield lambda call: page.evaluate(f"(() => {{ {code}\nreturn {call}; }})()")
    page.close()


def test_an_accuracy_axis_starts_where_the_data_are(scales):
    low, high = scales("paddedExtent([0.9, 1], false)")
    assert 0.89 < low < 0.9
    assert high == 1


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
def test_scales_and_ticks(scales, call, expected):
    assert scales(call) == expected
