"""The queue: nothing is lost, nothing is done twice, and what is stale is done again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import groupby

import pytest

from snopt.lab.optimizers import OPTIMIZERS
from snopt.lab.paper import jobs as jobs_module
from snopt.lab.paper import queue, version
from snopt.lab.paper.item import Item, Result, Space
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.jobs import Training
from snopt.lab.paper.queue import duration, jobs_of, left_text, pending, work
from snopt.lab.paper.scales import CUTS, TUNING_SEED, configuration
from tests.lab.paper.fake_queue import COUNT, fake_item


def quietly(item, space):
    work([item], space, watch=lambda folder: (), tell=lambda label: None)


def lines_of(root):
    return Counter((root / "log").read_text().splitlines())


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    """Every test starts as a new process would."""
    monkeypatch.setattr(jobs_module, "_done", set())
    monkeypatch.setattr(queue, "PATIENCE", 0.05)


def test_all_jobs_are_done_once_also_those_that_others_lead_to(tmp_path):
    item, space = fake_item(tmp_path), Space(tmp_path, "smoke")
    quietly(item, space)
    quietly(item, space)
    assert pending([item], space) == []
    assert set(lines_of(tmp_path).values()) == {1}
    assert len(lines_of(tmp_path)) == 2 * COUNT


def test_two_processes_share_the_work_and_one_that_is_killed_loses_nothing(tmp_path):
    command = [sys.executable, "-m", "tests.lab.paper.fake_queue", str(tmp_path)]
    killed = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [each.wait(timeout=120) for each in both] == [0, 0]
    counts = lines_of(tmp_path)
    done = {line: count for line, count in counts.items() if line.startswith("done")}
    assert len(done) == COUNT
    assert set(done.values()) == {1}
    # The one that the killed process was at was begun twice.
    assert sum(counts.values()) - sum(done.values()) <= COUNT + 1


def test_records_of_other_settings_are_set_aside_and_made_again(tmp_path):
    space = Space(tmp_path, "smoke")
    quietly(fake_item(tmp_path, settings=1), space)
    changed = fake_item(tmp_path, settings=2)
    assert len(pending([changed], space)) == COUNT // 2
    quietly(changed, space)
    assert set(lines_of(tmp_path).values()) == {2}
    folder = space.measurement("first-0")
    assert (folder / "stale" / "measured.json").exists()


def test_records_of_other_code_are_stale(tmp_path, monkeypatch):
    item, space = fake_item(tmp_path), Space(tmp_path, "smoke")
    quietly(item, space)
    monkeypatch.setattr(version, "code_version", lambda names: "another")
    assert len(pending([item], space)) == COUNT // 2


def test_the_version_of_the_code_ignores_comments_and_docstrings(tmp_path):
    def version_of(text):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        (folder / "optim").mkdir(parents=True)
        (folder / "optim" / "rule.py").write_text(text)
        return version.code_version(("optim",), folder)

    plain = version_of("def f(x):\n    return x + 1\n")
    assert version_of('"""Doc."""\ndef f(x):\n    """Add."""\n    return x + 1  # one\n') == plain
    assert version_of("def f(x):\n    return x + 2\n") != plain
    assert len(plain) == 12


def test_a_stamp_covers_what_a_training_uses_and_nothing_else(tmp_path):
    shutil.copytree(version.PACKAGE, tmp_path / "snopt", ignore=shutil.ignore_patterns("*.pyc"))
    adam, snopt = (configuration("mnist", name, "cpu") for name in ("adam", "snopt"))
    learned = replace(adam, horizon=replace(adam.horizon, policy="feedback"))
    compiled = replace(adam, solver=replace(adam.solver, compile=True))

    def stale_after(file):
        """Who is stale after a change of a file."""
        path = tmp_path / "snopt" / file
        text = path.read_text()
        configs = {"adam": adam, "snopt": snopt, "learned": learned, "compiled": compiled}

        def versions():
            version.code_version.cache_clear()
            package = tmp_path / "snopt"
            return {
                n: version.code_version(version.code_of(c), package) for n, c in configs.items()
            }

        before = versions()
        path.write_text(text + "\nchanged = 1\n")
        after = versions()
        path.write_text(text)
        return {name for name in configs if before[name] != after[name]}

    everybody = {"adam", "snopt", "learned", "compiled"}
    assert stale_after("ode/step.py") == everybody
    assert stale_after("lab/train/step.py") == everybody
    assert stale_after("lab/data/images.py") == everybody
    assert stale_after("lab/optimizers/registry.py") == everybody
    assert stale_after("adjoint/compiled_steps.py") == {"compiled"}
    assert stale_after("optim/rules.py") == {"snopt"}
    assert stale_after("second_order/terminal.py") == {"snopt", "learned"}
    assert stale_after("horizon/policy.py") == {"learned"}
    for file in ("lab/train/listeners.py", "lab/optimizers/wrapped.py", "second_order/low_rank.py"):
        assert "adam" not in stale_after(file)
        assert "snopt" not in stale_after(file)
    assert stale_after("lab/report/html.py") == stale_after("lab/cli/main.py") == set()


def test_every_optimizer_has_its_code_listed():
    assert set(version.METHODS) == set(OPTIMIZERS)


def test_a_stamp_that_covers_nothing_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        version.code_version(("optimm",), tmp_path)


def test_a_stale_training_starts_over(tmp_path):
    config = configuration("circle", "adam", "smoke")
    job = Training(config, tmp_path / "run")
    job.do(lambda folder: ())
    assert job.done()
    kept = json.loads((job.folder / "stamp.json").read_text())
    assert {**kept, "seconds": 0} == {**job.stamp, "seconds": 0}
    other = Training(replace(config, optimizer=replace(config.optimizer, lr=0.5)), job.folder)
    assert not other.done()
    other.do(lambda folder: ())
    assert other.done()
    assert not Training(config, job.folder).current()
    assert (job.folder / "stale" / "metrics.jsonl").exists()
    text = (job.folder / "metrics.jsonl").read_text()
    steps = [json.loads(line) for line in text.splitlines()]
    assert {step["lr"] for step in steps if step["kind"] == "step"} == {0.5}


def test_what_is_left_is_told_with_an_estimate(tmp_path):
    item, space = fake_item(tmp_path, seconds=0.0), Space(tmp_path, "smoke")
    assert left_text([item], space) == f"{COUNT // 2} of {COUNT // 2} jobs left, length unknown"
    first, *_ = jobs_of([item], space)
    first.do(lambda folder: ())
    stamp = json.loads((first.folder / "stamp.json").read_text())
    (first.folder / "stamp.json").write_text(json.dumps({**stamp, "seconds": 60.0}))
    assert left_text([item], space) == "2 of 3 jobs left, about 2 min"
    assert left_text([item], space, workers=2) == "2 of 3 jobs left, about 60 s"
    quietly(item, space)
    assert left_text([item], space) == f"all {COUNT} jobs are done"


def test_a_run_is_estimated_by_those_of_its_task_and_optimizer(tmp_path):
    config = configuration("circle", "adam", "smoke")

    class Known(Training):
        def done(self):
            return self.spent() is not None

        def spent(self):
            return {"a": 3.0, "b": 30.0}.get(self.folder.name)

    def left(**settings):
        """The estimate for one more run beside two that took 3 and 30 seconds."""
        sgd = configuration("circle", "sgd", "smoke").optimizer
        names = {"a": {}, "b": {"optimizer": sgd}, "c": settings}
        jobs = [Known(replace(config, **s), tmp_path / name) for name, s in names.items()]
        item = Item("known", (), "Known", lambda space: jobs, lambda space: Result([]))
        return left_text([item], Space(tmp_path, "smoke")).partition("about ")[2]

    assert left(train=replace(config.train, iterations=6)) == "6 s"
    assert left(optimizer=configuration("circle", "sgd", "smoke").optimizer) == "30 s"
    assert left(optimizer=replace(config.optimizer, name="soap", lr=2.0)) == "16 s"


def test_a_worker_whose_parent_is_gone_asks_the_training_to_stop(monkeypatch):
    sent = []
    monkeypatch.setattr(signal, "raise_signal", sent.append)
    listener = queue.Orphaned()
    listener.on_record({})
    assert sent == []
    monkeypatch.setattr(os, "getppid", lambda: listener.parent + 1)
    listener.on_record({})
    assert sent == [signal.SIGTERM]


def test_durations_are_written_in_units_that_fit():
    assert duration(3600) == "1 h 0 min"


def test_jobs_that_became_known_come_before_those_of_the_next_item(tmp_path):
    (tmp_path / "b").mkdir()
    other = fake_item(tmp_path / "b")
    space, told = Space(tmp_path, "smoke"), []
    second = replace(other, jobs=lambda _: other.jobs(Space(tmp_path / "b", "smoke")))
    work([fake_item(tmp_path), second], space, watch=lambda folder: (), tell=told.append)
    one = [f"measured: {stage}-{k}" for stage in ("first", "second") for k in range(COUNT // 2)]
    assert told == one * 2


def test_the_main_comparison_comes_first_data_set_by_data_set(tmp_path):
    space = Space(tmp_path, "cpu")
    every, main = (
        [job for job in jobs_of(items, space) if isinstance(job, Training)]
        for items in (ITEMS.values(), [ITEMS["accu"]])
    )
    assert every[: len(main)] == main
    by_task = [(task, list(group)) for task, group in groupby(main, lambda job: job.config.task)]
    assert [task for task, _ in by_task] == list(CUTS)
    for _, group in by_task:
        seeds = [job.config.train.seed for job in group]
        assert seeds == sorted(seeds, key=[TUNING_SEED, 0, 1, 2].index)
