"""The settings with which t1 is learned."""

import pytest

from snopt.lab.paper import Space
from snopt.lab.paper.items.horizon import LEARNED, learned_arms


def test_full_scale_has_the_authors_settings(tmp_path):
    arms = learned_arms(Space(tmp_path, "full"), "cifar10")
    found = {
        (arm.config.solver.horizon, arm.config.horizon.policy): arm.config.horizon for arm in arms
    }
    assert set(found) == {
        (1.0, "fixed"),
        (1.0, "feedback"),
        (1.0, "gradient"),
        (0.05, "feedback"),
        (0.05, "gradient"),
    }
    for (start, policy), horizon in found.items():
        if policy != "fixed":
            assert horizon.penalty == pytest.approx(128 * {1.0: 6e-4, 0.05: 4e-4}[start])
            assert (horizon.every, horizon.lr) == (50, 0.1)


def test_what_differs_is_said(tmp_path):
    full, cpu = (
        "\n".join(LEARNED.result(Space(tmp_path, scale)).notes) for scale in ("full", "cpu")
    )
    for notes in (full, cpu):
        assert "the paper prints none" in notes
        assert "above 0.1" in notes
    assert "of t1: 50." in full
    assert "of t1: 10 (paper: 50 to 100" in cpu
