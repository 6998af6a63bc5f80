import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from snopt.lab.train import RunFolderError, load_checkpoint, train
from snopt.lab.train import folder as module
from snopt.lab.train.checkpoint import (
    capture,
    check_readable,
    checkpoints,
    checksum_of,
    save_checkpoint,
    set_aside,
)
from snopt.lab.train.task import Progress
from tests.lab.train.problems import (
    CONFIG,
    Moons,
    assert_same_records,
    assert_same_state,
    make_parts,
)


def state_at(iteration):
    return capture(make_parts("adam"), Progress(iteration), [], run="a run")


def save(folder, *iterations, keep=5):
    for iteration in iterations:
        save_checkpoint(folder, iteration, state_at(iteration), keep)


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_last_ones_are_kept_in_order_of_iterations(tmp_path):
    save(tmp_path, 9, 10, 100_000_000, keep=2)
    assert [p.stem for p in checkpoints(tmp_path)] == ["step-00000010", "step-100000000"]
    assert len(os.listdir(tmp_path / "checkpoints")) == 4


@pytest.mark.parametrize(
    "ruin", [damage, lambda p: p.write_bytes(b""), lambda p: checksum_of(p).unlink()]
)
def test_damage_is_noticed_and_the_checkpoint_before_is_used(tmp_path, ruin):
    save(tmp_path, 1, 2)
    ruin(checkpoints(tmp_path)[-1])
    with pytest.warns(RuntimeWarning, match="step-00000002.pt is damaged"):
        assert load_checkpoint(tmp_path)["iteration"] == 1


def test_without_a_whole_checkpoint_there_is_an_error(tmp_path):
    save(tmp_path, 1)
    damage(checkpoints(tmp_path)[0])
    with pytest.raises(RunFolderError, match="none of the 1 checkpoints"):
        load_checkpoint(tmp_path)


def test_damaged_ones_are_not_counted_as_kept_ones(tmp_path):
    save(tmp_path, 1, 2, 3)
    set_aside(tmp_path, after=2)
    save(tmp_path, 3, keep=2)
    assert [p.stem[-1] for p in checkpoints(tmp_path)] == ["2", "3"]
    assert (tmp_path / "checkpoints" / "step-00000003.pt.damaged").exists()


def test_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    save(tmp_path, 1)
    before = sorted(os.listdir(tmp_path / "checkpoints"))

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        save(tmp_path, 2, keep=1)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == before
    assert load_checkpoint(tmp_path)["iteration"] == 1


def test_full_disk_while_a_checkpoint_is_written_is_reported_as_such(tmp_path, monkeypatch):
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    monkeypatch.setattr(module, "create", lambda _: full)
    with pytest.raises(RunFolderError, match=r"step-00000001.pt: No space left on device"):
        save_checkpoint(tmp_path, 1, {"weight": torch.ones(100_000)}, keep=1)


def test_state_that_is_not_plain_is_refused_when_it_is_written(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"bad": Moons()}, keep=1)
    with pytest.raises(RunFolderError, match="tensors and plain values"):
        check_readable(path)
    state = {**state_at(2), "schedulers": [{"milestones": Counter([1])}]}
    check_readable(save_checkpoint(tmp_path, 2, state, keep=1))


def test_run_with_a_damaged_checkpoint_falls_back_and_ends_the_same(tmp_path):
    whole, hurt = tmp_path / "whole", tmp_path / "hurt"
    train(Moons(), make_parts("snopt"), CONFIG, whole)
    train(Moons(), make_parts("snopt"), CONFIG, hurt)
    damage(checkpoints(hurt)[-1])
    with pytest.warns(RuntimeWarning, match="step-00000012.pt is damaged"):
        train(Moons(), make_parts("snopt"), CONFIG, hurt, resume=True)
    assert "step-00000012.pt is damaged" in (hurt / "log.txt").read_text()
    assert (hurt / "checkpoints" / "step-00000012.pt.damaged").exists()
    assert_same_state(whole, hurt)
    assert_same_records(whole, hurt)


ODD = {
    "a tensor": lambda state: torch.ones(2),
    "empty": lambda state: {},
    "no model": lambda state: {k: v for k, v in state.items() if k != "model"},
    "empty model": lambda state: {**state, "model": {}},
    "no optimizer": lambda state: {**state, "optimizers": []},
    "optimizers of another type": lambda state: {**state, "optimizers": 3},
    "unknown progress": lambda state: {**state, "progress": {"iterations": 3}},
    "another iteration": lambda state: {**state, "iteration": 99},
    "broken random numbers": lambda state: {**state, "rng": [{}]},
    "another run": lambda state: {**state, "run": "another"},
    "a later format": lambda state: {**state, "format": 2},
}
IMPOSSIBLE = {
    "iteration": 5, "skipped": None, "seconds": None, "last": [], "best": "high", "costs": "abc",
}  # fmt: skip


def with_progress(name):
    return lambda state: {**state, "progress": {**state["progress"], name: IMPOSSIBLE[name]}}


ODD |= {f"impossible {name}": with_progress(name) for name in IMPOSSIBLE}


@pytest.mark.parametrize("spoil", ODD.values(), ids=ODD)
def test_checkpoint_of_the_wrong_structure_is_not_used(tmp_path, spoil):
    whole, odd = tmp_path / "whole", tmp_path / "odd"
    config = replace(CONFIG, checkpoint_every=6)
    train(Moons(), make_parts("snopt"), config, whole)
    train(Moons(), make_parts("snopt"), config, odd)
    state = torch.load(checkpoints(odd)[-1], weights_only=True)
    save_checkpoint(odd, 12, spoil(state), keep=2)
    with pytest.warns(RuntimeWarning, match="step-00000012.pt is damaged"):
        train(Moons(), make_parts("snopt"), config, odd, resume=True)
    assert_same_state(whole, odd)
    assert_same_records(whole, odd)
