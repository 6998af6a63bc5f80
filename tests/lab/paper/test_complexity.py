"""Seconds and memory of an iteration."""

from dataclasses import replace

import pytest
import torch

from snopt.lab.paper import iterations
from snopt.lab.paper.item import Space
from snopt.lab.paper.items.complexity import COMPLEXITY, configs_of
from snopt.lab.paper.iterations import Trainer, measure_iterations, time_rounds
from snopt.lab.paper.queue import run_item
from snopt.lab.recipes.build import build_task
from snopt.lab.recipes.catalogue import recipe


def quiet(_):
    return []


def test_at_rate_zero_nothing_moves_and_refreshes_come_when_told():
    config = recipe("digits", "snopt", "smoke")
    task = build_task(config)
    trainer = Trainer(config, task, "cpu")
    (optimizer,) = trainer.second_order
    before = [p.detach().clone() for p in trainer.update.parameters]
    batch = task.train.tensors
    for refresh in (True, False, False, True):
        trainer.iterate(batch, refresh=refresh)
    assert optimizer.counts.refreshes == 2
    assert all(map(torch.equal, before, trainer.update.parameters))


def test_a_batch_without_a_finite_loss_is_not_measured():
    config = recipe("digits", "adam", "smoke")
    task = build_task(config)
    batch = replace(task.train.tensors, x=torch.full_like(task.train.tensors.x, torch.nan))
    with pytest.raises(RuntimeError, match="cannot be measured"):
        Trainer(config, task, "cpu").iterate(batch)


def test_memory_is_measured_in_a_process_of_its_own():
    found = measure_iterations({"snopt": recipe("digits", "snopt", "smoke")}, rounds=1)
    assert found["megabytes"]["snopt"] > 0
    assert set(found["seconds"]["snopt"]) == {"plain", "refresh"}


def test_passes_count_alike_for_all_and_steps_do_not(monkeypatch):
    class Pretended:
        def __init__(self, config, task, device):
            self.plain, self.second_order = config, [None] * (config == (6.0, 3.0))

        def iterate(self, batch, *, refresh=False):
            pass

        def seconds(self, batch, *, refresh=False):
            return (9.0, 5.0) if refresh else self.plain

    monkeypatch.setattr(iterations, "Trainer", Pretended)
    found = time_rounds({"adam": (5.0, 1.0), "snopt": (6.0, 3.0)}, None, [None], "cpu")
    # The passes took 4 and 3 seconds; a refresh took 3 seconds more than an iteration without.
    assert found == {"adam": {"plain": [4.5]}, "snopt": {"plain": [6.5], "refresh": [9.5]}}


def test_the_step_is_a_part_of_the_iteration():
    config = recipe("digits", "snopt", "smoke")
    task = build_task(config)
    trainer = Trainer(config, task, "cpu")
    whole, step = trainer.seconds(task.train.tensors, refresh=True)
    assert 0 < step < whole


def test_the_item_runs(tmp_path, monkeypatch):
    asked = []

    def pretend(function, config, task):
        asked.append(function)
        return 100.0 + 10.0 * len(asked)

    monkeypatch.setattr(iterations, "in_fresh_process", pretend)
    space = Space(tmp_path, "smoke", ("circle",))
    told = []
    found = run_item(COMPLEXITY, space, watch=quiet, tell=told.append)
    seconds, memory, refreshes = found.tables
    assert told == ["measured: complexity-circle"]
    assert memory.rows == [["Circle", 110.0, 120.0, 130.0, 140.0, "1.18", "1.27", "1.02"]]
    assert seconds.rows[0][-1] == "2.75"
    assert all(cell > 0 for cell in seconds.rows[0][1:5])
    assert [row[-1] for row in refreshes.rows] == ["100", "100"]
    assert "Models and batches are those of scale smoke." in found.notes
    assert set(found.curves) == {"runtime", "memory"}
    assert (space.output("complexity") / "figure.png").exists()
    # What was measured is not measured again.
    run_item(COMPLEXITY, space, watch=quiet, tell=told.append)
    assert len(told) == 1


def test_no_model_is_compiled():
    for config in configs_of("spoken_arabic_digits", "cpu").values():
        assert not config.solver.compile
