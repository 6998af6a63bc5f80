import json
import os
import signal
import subprocess
import sys

import pytest

from snopt.lab.train import FolderInUse, train
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
