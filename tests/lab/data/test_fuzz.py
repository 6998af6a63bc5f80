"""Damaged files: every one is read correctly or refused with an error of the library."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from snopt.lab.data import (
    REGISTRY,
    DataCorrupted,
    DataError,
    Entry,
    File,
    Form,
    Splits,
    load,
    verify,
)
from snopt.lab.data.archives import extract
from tests.lab.data import files
from tests.lab.data.mutate import mutate, recompress

#: How often every file format is damaged; for a long run, set the variable to 500.
MUTATIONS = int(os.environ.get("SNOPT_FUZZ_FILES", "20"))


def write_form(root: Path, name: str, number: int) -> None:
    """Write small files for one form of a data set, in the format that their names say."""
    sizes = files.SIZES[name]
    paths = [root / file.path for file in REGISTRY[name].forms[number].files]
    suffix = paths[0].suffix
    if name in ("gas", "miniboone"):
        write_tables(paths, sizes)
    elif suffix == ".mat":
        write_svhn(paths, sizes)
    elif suffix == ".ts":
        channels = 13 if name == "spoken_arabic_digits" else 3
        files.write_uea(root, paths[0].parent.name, channels, (2, 5), sizes)
    elif suffix == ".txt":
        files.write_arabic(root, sizes)
    elif suffix == ".gz":
        files.write_mnist(root, sizes)
    else:
        for path in paths:
            files.write_cifar(path, 20)


def write_svhn(paths: list[Path], sizes: tuple[int, int]) -> None:
    for path, count, compressed in zip(paths, sizes, (True, False), strict=True):
        x = files.random().integers(0, 9, (32, 32, 3, count), dtype=np.uint8)
        content = {"X": x, "y": np.ones((count, 1), np.uint8)}
        savemat(files.in_folder(path), content, do_compression=compressed)


def write_tables(paths: list[Path], sizes: tuple[int, int]) -> None:
    for path, count in zip(paths, sizes if len(paths) > 1 else [100], strict=True):
        columns = 43 if "miniboone" in path.parts else 8
        table = files.random().standard_normal((count, columns))
        files.in_folder(path)
        if path.suffix == ".npy":
            np.save(path, table)
        elif path.suffix == ".h5":
            files.write_hdf(path, data=table)
        elif path.suffix == ".csv":
            files.write_air_quality(path, table)
        else:
            files.write_ethylene(path, files.sensors(400))


def check(splits: Splits) -> None:
    for part in (splits.train, splits.valid, splits.test):
        batch = part.tensors
        assert batch.x.shape == (len(part), *splits.spec.shape)
        assert len(part) > 0
        assert batch.x.isfinite().all()
        assert batch.y is None or (batch.y.min() >= 0 and batch.y.max() < splits.spec.classes)
    if splits.spec.preprocessing == "standard":  # and no channel was erased
        channel = 1 if splits.spec.kind == "image" else -1
        assert (splits.train.tensors.x.movedim(channel, 0).flatten(1).std(1) > 0.1).all()


FORMS = [(name, number) for name in files.SIZES for number in range(len(REGISTRY[name].forms))]


@pytest.mark.parametrize(("name", "number"), FORMS)
def test_a_damaged_file_is_read_correctly_or_refused(name, number, tmp_path, small_sizes):
    write_form(tmp_path, name, number)
    form = REGISTRY[name].forms[number]
    draw = random.Random(f"{name} {number}")
    refused = 0
    for trial in range(MUTATIONS):
        path = tmp_path / draw.choice(form.files).path
        valid = path.read_bytes()
        path.write_bytes(mutate(valid, draw))
        try:
            check(load(name, tmp_path, preprocessing=draw.choice(["standard", "paper"])))
        except DataError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"mutation {trial} of {path.name}: {error!r}") from error
        path.write_bytes(valid)
    assert refused > 0
    check(load(name, tmp_path))


def test_damaged_checksums_are_compared_or_unknown(tmp_path):
    files.write_mnist(tmp_path)
    form = Form((File("mnist/t10k-labels-idx1-ubyte.gz"),), "whole", "One file.")
    content = (tmp_path / form.files[0].path).read_bytes()
    valid = f"{hashlib.sha256(content).hexdigest()}  {form.files[0].path}\n".encode()
    draw = random.Random("checksums")
    verdicts = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRY, "labels", Entry("labels", "image", REGISTRY["mnist"].load, (form,)))
        for trial in range(MUTATIONS):
            damaged = mutate(draw.choice([valid, b"md6:" + valid]), draw)
            (tmp_path / "SHA256SUMS").write_bytes(damaged)
            try:
                verdicts |= set(verify("labels", tmp_path).values())
            except Exception as error:
                raise AssertionError(f"mutation {trial}: {error!r}") from error
        (tmp_path / "SHA256SUMS").write_bytes(valid)
        assert set(verify("labels", tmp_path).values()) == {"correct"}
    assert "unknown" in verdicts


@pytest.mark.parametrize("make", [files.zipped, files.tar])
def test_a_damaged_archive_gives_the_file_or_is_refused(make, tmp_path):
    draw = random.Random(make.__name__)
    valid = make({"folder/a.txt": b"a", "folder/b.txt": bytes(range(256)) * 8})
    path = tmp_path / "archive"
    for trial in range(MUTATIONS):
        path.write_bytes(recompress(valid, draw))
        try:
            assert extract(path, "b.txt", tmp_path / "to").is_file()
        except DataCorrupted:
            assert not list((tmp_path / "to").iterdir())
        except Exception as error:
            raise AssertionError(f"mutation {trial}: {error!r}") from error
        (tmp_path / "to/b.txt").unlink(missing_ok=True)
