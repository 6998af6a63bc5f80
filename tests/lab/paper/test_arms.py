"""Arms of a comparison: how their end is told."""

from pathlib import Path

import pytest

from snopt.lab.paper import Space
from snopt.lab.paper.arms import Arm
from snopt.lab.paper.scales import configuration
from snopt.lab.report.summary import Stat


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Stat(0.5, 0.01, 3), "50.00 ± 1.00"),
        (Stat(0.5, 0.0, 1), "50.00 ± 0.00 (1 of 3)"),
        (None, "-"),
    ],
)
def test_a_mean_over_fewer_seeds_than_were_run_says_so(monkeypatch, found, text):
    monkeypatch.setattr(Arm, "finals", found)
    arm = Arm(Space(Path(), "cpu"), "adam", configuration("mnist", "adam", "cpu"))
    assert arm.finals_text() == text
