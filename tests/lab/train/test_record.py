import json
import os
import subprocess
from dataclasses import replace

import pytest

from snopt.lab.train import RunFolderError, load_checkpoint, read_records, train
from snopt.lab.train.checkpoint import Progress
from snopt.lab.train.record import Record, rewind
from tests.lab.train.problems import CONFIG, At, Moons, make_parts, timeless


def write(folder, text):
    (folder / "metrics.jsonl").write_text(text)


def test_torn_and_damaged_lines_are_left_out(tmp_path):
    write(tmp_path, '{"kind": "start"}\n{"kind": "st\n[1]\n\xff\n{"kind": "step"}\n{"kind": "e')
    assert [r["kind"] for r in read_records(tmp_path)] == ["start", "step"]


def test_no_file_means_no_records(tmp_path):
    assert read_records(tmp_path) == []


def test_values_that_are_not_finite_are_null(tmp_path):
    record = Record(tmp_path)
    record.add("step", loss=float("nan"), lr=float("inf"))
    assert read_records(tmp_path) == [{"kind": "step", "loss": None, "lr": None}]
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    record.close()


def test_rewinding_keeps_what_will_not_be_written_again(tmp_path):
    lines = [
        {"kind": "start"},
        {"kind": "eval", "split": "valid", "iteration": 0},
        {"kind": "step", "iteration": 1},
        {"kind": "step", "iteration": 2},
        {"kind": "eval", "split": "valid", "iteration": 2},
        {"kind": "eval", "split": "test", "iteration": 2},
        {"kind": "end", "iteration": 2},
        {"kind": "step", "iteration": 3},
    ]
    write(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    rewind(tmp_path, Progress(iteration=2, evaluated=0))
    assert read_records(tmp_path) == lines[:4]
    rewind(tmp_path, None)
    assert read_records(tmp_path) == lines[:1]


def test_line_that_cannot_be_written_whole_leaves_no_trace(tmp_path, monkeypatch):
    record = Record(tmp_path)
    record.add("step", iteration=1)
    before, write_all = (tmp_path / "metrics.jsonl").read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write_all(handle, data[:5]))
    with pytest.raises(RunFolderError, match="No space left"):
        record.add("step", iteration=2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    record.close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 192 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(disk)]
    try:
        subprocess.run(mounting, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems cannot be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk):
    with open(disk / "filler", "wb", buffering=0) as file:
        size = 4096
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


def test_full_disk_ends_the_run_with_a_record_that_says_so(small_disk):
    folder = small_disk / "run"
    config = replace(CONFIG, iterations=1000)
    with pytest.raises(RunFolderError, match="No space left on device"):
        train(
            Moons(), make_parts("adam"), config, folder,
            listeners=[At(6, lambda: fill(small_disk))],
        )  # fmt: skip
    end = read_records(folder)[-1]
    assert (end["kind"], end["status"]) == ("end", "failed")
    assert "No space left on device" in end["message"]
    saved = load_checkpoint(folder)["iteration"]
    assert saved >= 4
    (small_disk / "filler").unlink()
    resumed = train(
        Moons(), make_parts("adam"), replace(CONFIG, iterations=16), folder, resume=True
    )  # fmt: skip
    assert resumed.status == "finished"


def test_read_only_folder_is_one_clear_error(small_disk):
    folder = small_disk / "run"
    train(Moons(), make_parts("adam"), CONFIG, folder)
    records = timeless(folder)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    longer = replace(CONFIG, iterations=20)
    with pytest.raises(RunFolderError, match="Read-only file system"):
        train(Moons(), make_parts("adam"), longer, folder, resume=True)
    with pytest.raises(RunFolderError, match="Read-only file system"):
        train(Moons(), make_parts("adam"), longer, small_disk / "new")
    assert timeless(folder) == records


def test_folder_below_a_file_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="Not a directory"):
        train(Moons(), make_parts("adam"), CONFIG, tmp_path / "file" / "run")
