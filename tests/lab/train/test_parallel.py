"""Two processes on halves of every batch end where one process does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from snopt.lab.train import World, join, load_checkpoint, read_records, train
from snopt.lab.train.parallel import traffic
from tests.lab.train.parallel_run import SOLVER
from tests.lab.train.problems import CONFIG, Moons, make_parts

PROGRAM = Path(__file__).with_name("parallel_run.py")


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes found and wrote."""
    root = tmp_path_factory.mktemp("parallel")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         str(PROGRAM), str(root)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return root, *json.loads((root / "found.json").read_text())


def test_two_processes_stopped_and_resumed_equal_one(together, tmp_path):
    root, found, _ = together
    assert found["statuses"] == ["interrupted", "finished"]
    assert found["same"]
    train(Moons(), make_parts("snopt", **SOLVER), CONFIG, tmp_path)
    states = [load_checkpoint(folder)["model"] for folder in (root / "together", tmp_path)]
    torch.testing.assert_close(states[0], states[1], rtol=1e-6, atol=1e-8)
    ours, theirs = read_records(root / "together"), read_records(tmp_path)
    steps = [[r["loss"] for r in rs if r["kind"] == "step"] for rs in (ours, theirs)]
    assert steps[0] == pytest.approx(steps[1], rel=1e-6)
    evals = [[r["metrics"]["loss"] for r in rs if r["kind"] == "eval"] for rs in (ours, theirs)]
    assert evals[0] == pytest.approx(evals[1], rel=1e-6)
    # One record, kept by the first process.
    assert [r["iteration"] for r in ours if r["kind"] == "step"] == list(range(1, 13))


def test_what_was_communicated_is_recorded(together):
    root, found, _ = together
    end = read_records(root / "together")[-1]
    assert end["bytes_factors"] == found["factor bytes"] > 0
    gradients = 12 * sum(p.numel() * 8 for p in make_parts("snopt").model.parameters())
    assert end["bytes_communicated"] == end["bytes_factors"] + gradients


def test_error_of_the_first_process_reaches_everyone(together):
    assert together[1]["refused"] == "everyone"


def test_bad_example_of_one_process_makes_all_skip_the_update(together):
    root, _, found = together
    assert found == {"status": "finished", "same": True}
    skipped = [r for r in read_records(root / "bad") if "skipped" in r]
    assert len(skipped) == 4  # once an epoch


def test_alone_every_exchange_returns_at_once():
    world = World()
    assert world.first
    assert world.mean(0.5) == 0.5
    assert world.any(True)
    assert not world.any(False)
    assert world.gather("a") == ["a"]
    assert world.from_first(lambda: 3) == 3


def test_joining_alone_computes_where_asked():
    with join("cpu") as world:
        assert (world.rank, world.size, world.device) == (0, 1, torch.device("cpu"))


def test_other_optimizers_exchange_gradients_only():
    sent = traffic(make_parts("adam"), iterations=10)
    assert sent["factors"] == 0
    assert sent["gradients"] == 10 * sum(
        p.numel() * 8 for p in make_parts("adam").model.parameters()
    )
