"""Two source trees as optimizers: equal trees, trees that fail, what is run again, the table."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import snopt
from benchmarks.command import parse
from benchmarks.files import read
from benchmarks.optimizer import releases, worker
from benchmarks.optimizer.releases import AFTER, BEFORE, TASKS, Arm, described, do, prepared, table
from benchmarks.optimizer.tasks import experiment
from benchmarks.optimizer.worker import COLUMNS, batches, build, trained
from snopt.lab.data import Spec
from snopt.lab.recipes.build import build_parts

SOURCE = Path(snopt.__file__).parents[1]
UPDATES = "updates", 3


def against(source, out):
    flags = f"--against {source} --tasks two_moons --seeds 1 --updates 3 --no-adam --out {out}"
    _, chosen = parse("benchmarks.optimizer", ["releases", *flags.split()])
    releases.main(chosen)
    return {name: runs["0"] for name, runs in read(out)["tasks"]["two_moons"].items()}


def config(name, seed=0):
    return experiment(TASKS[name], "adam", 0.01, seed, UPDATES, "tune")


@pytest.mark.slow
def test_equal_trees_do_the_same_and_nothing_is_run_twice(tmp_path, capsys):
    found = against(SOURCE, tmp_path / "out.json")
    timeless = [[row[0], *row[2:]] for row in found[BEFORE]["curve"]]
    assert timeless == [[row[0], *row[2:]] for row in found[AFTER]["curve"]]
    assert len(timeless) == 4
    capsys.readouterr()
    assert against(SOURCE, tmp_path / "out.json") == found
    assert "seed" not in capsys.readouterr().out


@pytest.mark.slow
def test_tree_that_cannot_train_is_a_result(tmp_path):
    (tmp_path / "snopt").mkdir()
    (tmp_path / "snopt" / "__init__.py").write_text("")
    found = against(tmp_path, tmp_path / "out.json")
    assert found[BEFORE]["failed"].startswith("ModuleNotFoundError: No module named 'snopt.models'")
    assert "failed" not in found[AFTER]


class Immediate:
    """A process that is this one."""

    def submit(self, function, *args):
        future = Future()
        future.set_result(function(*args))
        return future


def test_run_is_made_again_if_its_settings_or_its_tree_changed():
    found = {}
    arm = Arm(AFTER, Immediate(), "code")
    assert do(found, "two_moons", 0, arm, UPDATES)
    assert not do(found, "two_moons", 0, arm, UPDATES)
    assert do(found, "two_moons", 0, arm, ("updates", 2))
    assert do(found, "two_moons", 0, replace(arm, code="other"), ("updates", 2))


@pytest.mark.parametrize("name", TASKS)
def test_models_of_the_worker_are_those_of_the_laboratory(name):
    shapes = {"image": (1, 28, 28), "series": (5, 3), "density": (2,), "flow": (2,)}
    setup = config(name)
    kind, shape = setup.model.kind, shapes[setup.model.kind]
    classes = None if kind == "density" else 4
    spec = Spec(name, "image" if kind == "image" else "table", shape, classes, None, "whole", "")
    theirs = build_parts(setup, spec).model
    model = build(*described(setup, spec))
    model.load_state_dict(theirs.state_dict())
    x = torch.rand(2, *shape)
    outputs = []
    for made in (model, theirs):
        torch.manual_seed(0)  # noise of an estimated divergence
        outputs.append(made.loss(x) if kind == "density" else made(x))
    assert torch.equal(*outputs)


def test_adam_learns_from_the_same_weights_and_batches():
    run = prepared(config("two_moons"), 0.01, ("updates", 20))
    found = trained(run)["curve"]
    again = trained(replace(run, rate=None))["curve"]
    loss = COLUMNS.index("valid_loss")
    assert found[0] == again[0]
    assert found[-1][loss] < found[0][loss]


def test_failure_is_recorded_with_its_reason_and_what_came_before():
    run = prepared(config("two_moons"), None, UPDATES)
    assert "Missing key" in trained(replace(run, weights={}))["failed"]
    found = trained(replace(run, train={**run.train, "y": run.train["y"] + 7}))
    assert len(found["curve"]) == 1
    assert found["failed"].startswith("IndexError: Target")


def test_seconds_are_a_budget_and_the_first_points_are_close():
    found = trained(prepared(config("two_moons"), 0.01, ("seconds", 0.3)))["curve"]
    seconds = [row[COLUMNS.index("seconds")] for row in found]
    assert 0.3 <= seconds[-1] < 2.0
    assert seconds == sorted(seconds)
    assert len(found) <= worker.POINTS + 1


def test_batches_are_shuffled_epochs_and_never_larger_than_the_data():
    drawn = batches(5, 2, seed=0)
    first = torch.cat([next(drawn), next(drawn)])
    assert len(first.unique()) == 4
    assert len(next(batches(3, 8, seed=0))) == 3


# -------------------------------------------------------------------------------------- table


def made(*ends, budget=("seconds", 4), **more):
    """Runs by seed, each with a first and a last point; ends are (loss, valid loss, accuracy)."""
    return {
        str(seed): {
            "curve": [[0, 0.0, 0, None, 2.0, None], [10, 2.0, 60, *end], [20, 4.0, 120, *end]],
            "budget": budget,
            **more,
        }
        for seed, end in enumerate(ends)
    }


def tabulated(**arms):
    header, _, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table({"digits": arms}).splitlines()
    )
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_table_has_means_the_best_rate_and_the_time_to_the_old_loss():
    adams = {"adam 0.001": made((0.3, 0.9, 0.5)), "adam 0.01": made((0.3, 0.4, 0.75))}
    before = made((0.2, 0.5, 0.5), (0.2, 0.7, 0.6))
    after = made((0.1, 0.25, 0.9), (0.1, 0.75, 1.0))
    [row] = tabulated(before=before, after=after, **adams)
    assert row == {
        "task": "`digits`",
        "budget": "4 s",
        "before": "0.6 (55.0%)",
        "after": "0.5 (95.0%)",
        "Adam, best rate": "0.4 (75.0%), 0.01",
        "updates": "20 → 20",
        "training loss": "0.2 → 0.1",
        "CPU s to the training loss before": "2",
    }


def test_failed_runs_and_losses_that_were_not_reached_are_said():
    good, bad = made((0.2, 0.5, None)), made((0.2, 0.5, None), failed="SolveError: too stiff")
    [row] = tabulated(before=bad, after=good)
    assert (row["before"], row["after"]) == ("1 of 1 failed", "0.5")
    assert (row["Adam, best rate"], row["CPU s to the training loss before"]) == ("–", "–")
    slower = made((0.3, 0.5, None), (0.1, 0.5, None))
    [row] = tabulated(before=made((0.2, 0.5, None), (0.2, 0.5, None)), after=slower)
    assert row["CPU s to the training loss before"] == "1 of 2 seeds"
    [row] = tabulated(
        before=made((None, None, None)), after={"0": {"curve": [], "budget": UPDATES}}
    )
    assert (row["before"], row["after"], row["budget"]) == ("1 of 1 failed",) * 2 + ("3 updates",)


def test_task_with_one_tree_only_is_left_out():
    assert tabulated(after=made((0.1, 0.2, None))) == []
