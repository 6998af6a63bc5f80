"""The main comparison: the best rival, when it is reached, and when a curve is flat."""

from pathlib import Path

import pytest

from snopt.lab.paper import Space
from snopt.lab.paper.arms import Arm
from snopt.lab.paper.items.methods import accuracy_columns, best_rival
from snopt.lab.paper.scales import configuration


def arms(monkeypatch, curves, task="mnist"):
    """Arms with pretended validation curves: ten updates and two seconds per point."""

    def curve(self, split, name):
        values = curves[self.name]
        steps = range(1, len(values) + 1)
        return {
            "iteration": [10.0 * k for k in steps],
            "seconds": [2.0 * k for k in steps],
            "mean": list(values),
        }

    monkeypatch.setattr(Arm, "curve", curve)
    config = configuration(task, "adam", "cpu")
    return [Arm(Space(Path(), "cpu"), name, config, title=name) for name in curves]


def cells(monkeypatch, curves, name, task="mnist"):
    made = arms(monkeypatch, curves, task)
    columns = accuracy_columns(made)
    (arm,) = (arm for arm in made if arm.name == name)
    wanted = ("CPU seconds to the best rival's validation", "updates to it")
    return [columns[column](arm) for column in (*wanted, "gain in the last quarter")]


def test_rivals_are_all_but_snopt_and_more_or_less_is_better(monkeypatch):
    curves = {"snopt": [0.99], "adam": [0.5, 0.8, 0.7], "soap": [0.6, 0.75]}
    arm, value = best_rival(arms(monkeypatch, curves))
    assert (arm.name, value) == ("adam", 0.8)
    arm, value = best_rival(arms(monkeypatch, curves, task="circle"))
    assert (arm.name, value) == ("adam", 0.5)


def test_the_time_is_that_of_the_first_value_as_good_as_the_rivals_best(monkeypatch):
    curves = {"adam": [0.5, 0.7, 0.8, 0.8], "snopt": [0.6, 0.81, 0.9, 0.9], "sgd": [0.1, 0.2]}
    assert cells(monkeypatch, curves, "snopt") == [4.0, 20.0, "flat"]
    assert cells(monkeypatch, curves, "adam")[:2] == [6.0, 30.0]
    assert cells(monkeypatch, curves, "sgd")[:2] == ["never", "never"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.1, 0.5, 0.9, 0.903], "flat"),
        ([0.1, 0.5, 0.8, 0.9], "12.5 %"),
        ([0.5, 0.4, 0.3, 0.2], "flat"),
    ],
)
def test_a_curve_is_flat_if_its_last_quarter_adds_little(monkeypatch, values, text):
    assert cells(monkeypatch, {"adam": values}, "adam")[2] == text
