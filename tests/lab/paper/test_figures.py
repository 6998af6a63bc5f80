"""Figures of a comparison: readable with nine data sets and eight methods."""

from itertools import pairwise

import pytest

from snopt.lab.paper import ITEMS, Result
from snopt.lab.paper.arms import RIVALS
from snopt.lab.paper.curves import WIDTH, best_rival, focus, grid
from snopt.lab.paper.headline import draw
from snopt.lab.paper.names import METHODS, TASKS

Figure = pytest.importorskip("matplotlib.figure").Figure
NAMES = [METHODS[name] for name in RIVALS]


def rising(best: float) -> list[float]:
    return [best * (1 - 0.9**k) for k in range(1, 21)]


def arm(best: float) -> dict:
    valid, seconds = rising(best), [float(k) for k in range(20)]
    run = {"status": "finished", "test": best, "iteration": seconds, "seconds": seconds}
    runs = [{**run, "valid": [v + shift for v in valid]} for shift in (0, 0.01)]
    return {"metric": "accuracy", "mode": "max", "seeds": 2, "runs": runs}


def curve(best: float) -> dict:
    x, mean = [float(k) for k in range(20)], [1 - v for v in rising(best)]
    return {"iteration": x, "seconds": x, "mean": mean, "below": mean, "above": mean}


def bests() -> dict[str, float]:
    """Muon is the best rival."""
    return {name: 0.5 + 0.05 * k - 0.3 * (name == "SOAP") for k, name in enumerate(NAMES)}


def bold(axis) -> set[str]:
    return {text.get_text() for text in axis.texts if text.get_fontweight() == "bold"}


def test_nine_data_sets_are_three_rows_of_three_panels_with_two_methods_emphasised():
    figure = Figure(layout="constrained")
    draw(figure, {task: {n: arm(b) for n, b in bests().items()} for task in TASKS.values()})
    assert len(figure.axes) == 9
    assert {axis.get_subplotspec().get_geometry()[:2] for axis in figure.axes} == {(3, 3)}
    for axis in figure.axes:
        assert {text.get_text() for text in axis.texts} == set(NAMES)
        assert bold(axis) == {"SNOpt (default)", "Muon"}
        assert len(axis.collections) == 2  # bands


def test_names_at_the_ends_of_lines_do_not_overlap():
    figure = Figure(layout="constrained")
    draw(figure, {"MNIST": {name: arm(0.9) for name in NAMES}, "SVHN": {"Adam": arm(0.5)}})
    figure.draw_without_rendering()
    panel = figure.axes[0]
    inches = panel.get_window_extent().height / figure.dpi
    heights = sorted(inches * text.get_position()[1] for text in panel.texts)
    assert min(b - a for a, b in pairwise(heights)) > panel.texts[0].get_fontsize() / 72


def test_convergence_has_the_data_sets_by_seconds_and_again_by_updates():
    methods = {
        name: {"training loss": curve(best), "validation accuracy": {"mean": rising(best)}}
        for name, best in bests().items()
    }
    figure = Figure(layout="constrained")
    curves = dict.fromkeys(TASKS.values(), methods)
    ITEMS["convergence"].draw(figure, Result([], [], curves))
    words = [axis.get_xlabel() for axis in figure.axes]
    assert words == ["CPU seconds"] * 9 + ["updates"] * 9
    assert all(bold(axis) == {"SNOpt (default)", "Muon"} for axis in figure.axes)
    assert {axis.get_yscale() for axis in figure.axes} == {"log"}


def test_every_figure_is_as_wide_as_the_page_and_empty_places_are_hidden():
    figure = Figure(layout="constrained")
    panels = grid(figure, 4)
    assert panels.shape == (1, 4)
    assert figure.get_size_inches()[0] == WIDTH
    assert [axis.get_visible() for axis in figure.axes] == [True] * 4 + [False] * 2


def test_a_spike_is_clipped_and_negative_likelihoods_stay_linear():
    axis = Figure().subplots()
    focus(axis, [[90.0, 3.0, 2.0, 1.0, 0.5, 0.1, 40.0, 0.1]], "min", log=True)
    assert axis.get_yscale() == "log"
    assert axis.get_ylim()[1] < 10
    axis = Figure().subplots()
    focus(axis, [[3.0, 1.0, -1.0, -2.0]], "min", log=True)
    assert axis.get_yscale() == "linear"


def test_the_best_rival_is_not_one_of_ours():
    found = {"SNOpt (tuned)": {"mean": [0.9]}, "Adam": {"mean": [0.2, 0.8]}, "SGD": None}
    assert best_rival(found, "max") == "Adam"
    assert best_rival({"SNOpt (tuned)": {"mean": [0.9]}}, "max") is None


def test_fixed_times_have_bands_and_a_name_per_data_set():
    points = {
        t1: {"time": [100.0 * float(t1), 2.0], "accuracy": [90.0, 1.0]} for t1 in ("0.5", "1")
    }
    points["0.25"] = {"time": None, "accuracy": None}
    figure = Figure(layout="constrained")
    ITEMS["fixed-t1"].draw(figure, Result([], [], {"MNIST": points}))
    for axis in figure.axes:
        assert [text.get_text() for text in axis.texts] == ["MNIST"]
        assert len(axis.collections) == 1
        assert list(axis.get_lines()[0].get_xdata()) == [0.5, 1.0]
