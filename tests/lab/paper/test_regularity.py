"""Regularity of trained flows."""

import json

import pytest
import torch

from snopt.lab.paper.item import Space
from snopt.lab.paper.items.regularity import REGULARITY, block_and_state, jobs, measure
from snopt.lab.paper.jobs import Measurement, Training
from snopt.lab.paper.queue import run_item
from snopt.lab.recipes.build import build_parts, build_task
from snopt.lab.recipes.catalogue import recipe
from snopt.lab.recipes.run import run
from snopt.models import ImageClassifier


def test_the_item_runs_and_measures_only_after_training(tmp_path):
    space = Space(tmp_path, "smoke")
    assert all(isinstance(job, Training) for job in jobs(space))
    found = run_item(REGULARITY, space, watch=lambda _: [], tell=lambda _: None)
    assert sum(isinstance(job, Measurement) for job in jobs(space)) == 3
    rows = {row[0]: row[1:] for row in found.tables[0].rows}
    assert rows["Adam"][-2:] == ["42.1", "323.88"]
    assert rows["SNOpt (default)"][-2:] == ["-", "-"]
    path = space.measurement("reg-digits-adam-seed0") / "measured.json"
    kept = json.loads(path.read_text())
    total = float(rows["Adam"][1].split()[0])
    assert total == pytest.approx(kept["kinetic"] + kept["jacobian"], abs=0.006)


def test_what_is_measured_is_the_trained_model(tmp_path):
    config = recipe("digits", "adam", "smoke")
    run(config, tmp_path / "run")
    found = measure(config, tmp_path / "run")
    # By hand, with the trained weights and a fine midpoint rule for ∫‖F‖².
    test = build_task(config).test
    model = build_parts(config, test.spec).model
    saved = torch.load(tmp_path / "run/checkpoints/step-00000003.pt", weights_only=True)
    x = test.tensors.x.flatten(1)
    steps = 400

    def kinetic():
        state, total = x, 0.0
        with torch.no_grad():
            for k in range(steps):
                t = torch.tensor((k + 0.5) / steps)
                middle = state + model.block.field(t, state) / (2 * steps)
                slope = model.block.field(t, middle)
                state = state + slope / steps
                total += slope.square().sum(1).mean() / steps
        return float(total)

    untrained = kinetic()
    model.load_state_dict(saved["model"])
    assert found["kinetic"] == pytest.approx(kinetic(), rel=1e-3)
    assert abs(untrained / found["kinetic"] - 1) > 0.01


def test_an_image_models_block_starts_from_its_stem():
    model = ImageClassifier(in_channels=3, width=4)
    x = torch.randn(2, 3, 32, 32)
    block, state = block_and_state(model, x)
    assert block is model.block
    # The second solve begins with the step of the first.
    torch.testing.assert_close(model.head(block(state)), model(x), rtol=1e-2, atol=1e-3)


def test_a_run_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        measure(recipe("digits", "adam", "smoke"), tmp_path)
