"""Averages, and the feedback term that brings them to the present."""

import torch

from snopt.horizon.window import Window

CPU = torch.device("cpu")


def test_a_window_of_one_iteration_has_the_feedback_of_the_formula():
    window = Window()
    Q_Tu, change = [torch.tensor([1.0, 2.0])], [torch.tensor([0.5, -1.0])]
    assert window.add(0.3, 0.2, 0.1, Q_Tu, change)
    found = window.averages(1.0, None, CPU)
    assert found.feedback == -1.5
    assert found.slope == 0.4
    assert abs(found.gradient - 0.09) < 1e-12
    assert found.examples == 0.2


def test_feedback_brings_every_iteration_to_the_present():
    """For a slope linear in the parameters the corrected average is the present slope exactly."""
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(4, generator=generator, dtype=torch.float64)
    theta = torch.zeros(4, dtype=torch.float64)
    window = Window()
    for _ in range(7):
        slope = 1.0 + float(g @ theta)
        step = torch.randn(4, generator=generator, dtype=torch.float64)
        theta = theta + step
        window.add(slope, 0.0, 0.0, [g], [step])
    found = window.averages(1.0, None, CPU)
    assert abs(found.slope + found.feedback - (1.0 + float(g @ theta))) < 1e-12
    assert abs(found.slope - (1.0 + float(g @ theta))) > 0.1


def test_an_iteration_that_is_not_finite_is_left_out_whole():
    window, part = Window(), torch.ones(2)
    window.add(1.0, 1.0, 0.0, [part], [part])
    before = window.averages(1.0, None, CPU)
    for bad in (float("nan"), float("inf")):
        assert not window.add(bad, 1.0, 0.0, [part], [part])
        assert not window.add(1.0, 1.0, 0.0, [part * bad], [part])
        assert not window.add(1.0, 1.0, 0.0, [part], [part * bad])
    window.miss()
    assert repr(window.averages(1.0, None, CPU)) == repr(before)
    assert len(window.rows) == 8


def test_nothing_measured_gives_no_average():
    window = Window()
    window.miss()
    assert window.averages(1.0, None, CPU) is None


def test_slopes_are_squared_before_they_are_averaged():
    window = Window()
    for slope in (1.0, -1.0):
        window.add(slope, 3.0)
    found = window.averages(1.0, None, CPU)
    assert (found.slope, found.gradient, found.examples) == (0.0, 1.0, 3.0)
