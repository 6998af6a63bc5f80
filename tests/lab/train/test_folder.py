import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from snopt.lab.train import FolderInUse, RunFolderError, load_checkpoint, train
from snopt.lab.train.folder import FolderLock
from tests.lab.train.problems import CONFIG, At, Moons, make_parts


def test_lock_names_its_holder_and_is_free_after_a_release(tmp_path):
    with FolderLock(tmp_path):
        owner = json.loads((tmp_path / "lock").read_text())
        assert owner["pid"] == os.getpid()
        assert {"host", "started"} <= set(owner)
    with FolderLock(tmp_path):
        pass


def test_second_run_in_a_folder_is_refused_and_the_first_goes_on(tmp_path):
    refused = []

    def second():
        with pytest.raises(FolderInUse, match=f"process {os.getpid()} on"):
            train(Moons(), make_parts("adam"), CONFIG, tmp_path, resume=True)
        refused.append(True)

    outcome = train(Moons(), make_parts("adam"), CONFIG, tmp_path, listeners=[At(5, second)])
    assert refused == [True]
    assert outcome.status == "finished"


HOLD = """
import sys, time
from pathlib import Path
from snopt.lab.train.folder import FolderLock
lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_lock_of_a_living_process_holds_and_that_of_a_killed_one_is_taken_over(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(FolderInUse, match=f"process {holder.pid}"):
        FolderLock(tmp_path).acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert (tmp_path / "lock").exists()
    with FolderLock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_unreadable_lock_of_nobody_is_taken_over(tmp_path):
    (tmp_path / "lock").write_text("no json, and longer than what will be written " * 9)
    with FolderLock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_identity_of_a_run_is_in_lock_config_and_checkpoints(tmp_path):
    train(Moons(), make_parts("adam"), CONFIG, tmp_path)
    identity = json.loads((tmp_path / "config.json").read_text())["run"]
    assert json.loads((tmp_path / "lock").read_text())["run"] == identity
    assert (
        load_checkpoint(tmp_path)["run"] == load_checkpoint(tmp_path, best=True)["run"] == identity
    )
    train(Moons(), make_parts("adam"), replace(CONFIG, iterations=14), tmp_path, resume=True)
    assert json.loads((tmp_path / "config.json").read_text())["run"] == identity
    assert load_checkpoint(tmp_path)["run"] == identity


@pytest.mark.parametrize("successor", [False, True])
def test_run_whose_folder_is_gone_stops_and_leaves_its_successor_alone(tmp_path, successor):
    folder = tmp_path / "run"

    def remove():
        shutil.rmtree(folder)
        if successor:
            folder.mkdir()
            (folder / "lock").touch()
            (folder / ".reserve").touch()

    with pytest.raises(RunFolderError, match="was removed or replaced"):
        train(Moons(), make_parts("adam"), CONFIG, folder, listeners=[At(5, remove)])
    if successor:
        assert {path.name for path in folder.iterdir()} == {"lock", ".reserve"}
    else:
        assert not folder.exists()


@pytest.mark.parametrize(
    "name", ["lock", ".reserve", "config.json.tmp", "metrics.jsonl", "log.txt"]
)
def test_links_in_the_folder_are_not_followed(tmp_path, name):
    precious, folder = tmp_path / "precious", tmp_path / "run"
    precious.write_text("mine")
    folder.mkdir()
    (folder / name).symlink_to(precious)
    with suppress(RunFolderError):
        train(Moons(), make_parts("adam"), CONFIG, folder)
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["lock", "config.json", "metrics.jsonl", "checkpoints", ".reserve"]
)
@pytest.mark.parametrize("resume", [False, True])
def test_odd_things_in_the_folder_give_an_error_that_names_it(tmp_path, name, resume):
    if name == "checkpoints":
        (tmp_path / name).touch()
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "something").touch()
    with pytest.raises(RunFolderError, match=str(tmp_path)) as caught:
        train(Moons(), make_parts("adam"), CONFIG, tmp_path, resume=resume)
    assert "\n" not in str(caught.value)
