"""Finished records, packed on one machine and continued on another."""

import io
import json
import tarfile

import pytest

from snopt.lab.paper import ITEMS, Space
from snopt.lab.paper.archive import restore, save
from snopt.lab.paper.queue import jobs_of, state
from tests.lab.paper.fake_runs import pretend_comparison

ACCU = [ITEMS["accu"]]


@pytest.fixture
def here(tmp_path):
    pretend_comparison(tmp_path / "here", ("svhn",))
    return Space(tmp_path / "here", "cpu", ("svhn",))


@pytest.fixture
def there(here, tmp_path):
    """Another place, with the records of the first one."""
    archive = tmp_path / "records.tar.xz"
    count = save(here, archive)
    assert count > len(jobs_of(ACCU, here)) > 0  # the searches as well
    space = Space(tmp_path / "there", "cpu", ("svhn",))
    assert restore(space, archive) == count
    return space


def test_a_restored_record_is_done_and_gives_the_same_result(here, there, tmp_path):
    assert all(job.done() for job in jobs_of(ACCU, there))
    before, after = (ITEMS["accu"].result(space) for space in (here, there))
    assert [table.rows for table in before.tables] == [table.rows for table in after.tables]
    assert before.curves == after.curves
    assert restore(there, tmp_path / "records.tar.xz") == 0  # what is there stays


def test_a_restored_record_of_other_code_is_stale(there):
    for path in there.root.rglob("stamp.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "code": "other"}))
    assert state(ACCU[0], there) == "not started"


def test_unfinished_work_is_not_packed(tmp_path):
    space = Space(tmp_path, "smoke", ("circle",))
    jobs_of(ACCU, space)[0].prepare()
    assert save(space, tmp_path / "records.tar.xz") == 0


@pytest.mark.parametrize("name", ["../stamp.json", "/tmp/stamp.json", "runs/a/program.py"])
def test_an_archive_writes_nothing_but_records(tmp_path, name):
    archive = tmp_path / "records.tar.xz"
    with tarfile.open(archive, "w:xz") as packed:
        packed.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(ValueError, match="not part of a record"):
        restore(Space(tmp_path / "there", "smoke"), archive)
