import gzip
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from scipy.io import savemat

from snopt.lab.data import DataCorrupted, images, load
from snopt.lab.data.images import read_cifar, read_idx, read_svhn
from tests.lab.data.files import SIZES, random, write_cifar, write_idx, write_mnist, write_svhn


def test_idx_gives_back_what_was_written(tmp_path):
    values = random().integers(0, 256, (5, 4, 3))
    write_idx(tmp_path / "x.gz", values)
    assert read_idx(tmp_path / "x.gz").tolist() == values.tolist()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda raw: raw[:-30], "compressed data"),
        (lambda raw: b"no gzip", "compressed data"),
        (lambda raw: raw[:40] + bytes([raw[40] ^ 255]) + raw[41:], "compressed data"),
        (lambda raw: gzip.compress(b"\0\0\x0b\x01\0\0\0\0"), "idx file of bytes"),
        (lambda raw: gzip.compress(b""), "idx file of bytes"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-1]), "59 values"),
        (lambda raw: gzip.compress(gzip.decompress(raw) + b"x"), "61 values"),
    ],
)
def test_a_damaged_idx_file_is_refused_by_name(tmp_path, damage, reason):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(write_idx(path, random().integers(0, 256, (5, 4, 3)))))
    with pytest.raises(DataCorrupted, match=reason) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_small_file_that_decompresses_to_too_much_is_refused_early(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "LARGEST_IDX", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(1 << 25), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(DataCorrupted, match="decompresses to more than"):
        read_idx(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 23


@pytest.mark.parametrize(
    ("file", "values", "reason"),
    [
        ("images-idx3", np.zeros((100, 14, 56)), r"\(100, 14, 56\), not \(N, 28, 28\)"),
        ("labels-idx1", np.arange(99) % 10, r"\(99,\) does not fit \(100, 28, 28\)"),
        ("labels-idx1", np.arange(100) % 11, "digits 0 to 9"),
    ],
)
def test_images_and_labels_must_fit(tmp_path, small_sizes, file, values, reason):
    write_mnist(tmp_path, SIZES["mnist"])
    write_idx(tmp_path / f"mnist/train-{file}-ubyte.gz", values)
    with pytest.raises(DataCorrupted, match=reason):
        load("mnist", tmp_path)


def test_a_data_set_that_is_too_short_is_refused(tmp_path):
    write_mnist(tmp_path, (100, 20))
    with pytest.raises(DataCorrupted, match=r"100 examples to train.*60000 and 1000"):
        load("mnist", tmp_path)


def test_cifar_has_planes_of_colour(tmp_path):
    records = write_cifar(tmp_path / "b.bin", 7)
    images = read_cifar(tmp_path / "b.bin")
    assert images.y.tolist() == list(range(7))
    assert images.x[3, 2, 5, 6] == records[3, 1 + 2 * 1024 + 5 * 32 + 6]


@pytest.mark.parametrize("size", [0, 3072, 3073 * 2 + 5])
def test_a_cut_cifar_file_is_refused(tmp_path, size):
    write_cifar(tmp_path / "b.bin", 3)
    (tmp_path / "b.bin").write_bytes((tmp_path / "b.bin").read_bytes()[:size])
    with pytest.raises(DataCorrupted, match=rf"{size} bytes are not whole records"):
        read_cifar(tmp_path / "b.bin")


def test_one_of_five_training_files_is_a_part_of_cifar(tmp_path):
    write_cifar(tmp_path / "cifar10/data_batch_1.bin", 20, seed=1)
    write_cifar(tmp_path / "cifar10/data_batch_4.bin", 20, seed=4)  # not enough of them
    write_cifar(tmp_path / "cifar10/test_batch.bin", 20, seed=6)
    splits = load("cifar10", tmp_path)
    assert splits.spec.completeness == "part"
    assert (len(splits.train), len(splits.valid), len(splits.test)) == (18, 2, 20)


def test_svhn_is_turned_upright_and_ten_is_zero(tmp_path):
    x = write_svhn(tmp_path / "a.mat", 12)
    images = read_svhn(tmp_path / "a.mat")
    assert images.x.shape == (12, 3, 32, 32)
    assert images.x[7, 2, 10, 20] == x[10, 20, 2, 7]
    assert images.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


def test_a_damaged_svhn_file_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    write_svhn(path, 12)
    for content in (path.read_bytes()[:2000], b"<html>Not found</html>"):
        path.write_bytes(content)
        with pytest.raises(DataCorrupted, match="MATLAB 5"):
            read_svhn(path)


def test_a_variable_that_decompresses_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "LARGEST_MAT", 1 << 20)
    path = tmp_path / "a.mat"
    write_svhn(path, 12)
    bomb = zlib.compress(bytes(1 << 21))
    element = np.array([15, len(bomb)], "<u4").tobytes() + bomb
    path.write_bytes(path.read_bytes()[:128] + element)
    with pytest.raises(DataCorrupted, match="decompresses to more than"):
        read_svhn(path)


@pytest.mark.parametrize("labels", [np.nan, 11, 2.5, -1])
def test_labels_of_svhn_must_be_digits(tmp_path, labels):
    x = np.zeros((32, 32, 3, 4), np.uint8)
    savemat(tmp_path / "a.mat", {"X": x, "y": np.full((4, 1), labels)})
    with pytest.raises(DataCorrupted, match="labels are not"):
        read_svhn(tmp_path / "a.mat")


def test_svhn_as_in_the_paper_is_tested_on_what_it_is_trained_on(small_files, small_sizes):
    standard = load("svhn", small_files)
    paper = load("svhn", small_files, preprocessing="paper")
    assert len(standard.test) == 20
    assert len(paper.test) == 100 == len(paper.train) + len(paper.valid)


def test_svhn_falls_back_to_the_small_part(tmp_path):
    for part in ("train", "test"):
        write_svhn(tmp_path / f"svhn/{part}_32x32_subset.mat", 30)
    assert load("svhn", tmp_path).spec.completeness == "part"


# ---------------------------------------------------------------------------- real files


def everything(splits):
    return torch.cat([splits.train.tensors.y, splits.valid.tensors.y])


def test_real_mnist_has_the_published_statistics(data_root):
    folder = data_root / "mnist"
    if not folder.exists():
        pytest.skip("no MNIST")
    x = read_idx(folder / "train-images-idx3-ubyte.gz")
    counts = x.flatten().bincount(minlength=256).double() / x.numel()
    levels = torch.arange(256).double() / 255
    mean = counts @ levels
    assert x.shape == (60_000, 28, 28)
    assert mean == pytest.approx(0.1307, abs=5e-5)
    assert (counts @ levels.square() - mean**2).sqrt() == pytest.approx(0.3081, abs=5e-5)
    y = read_idx(folder / "train-labels-idx1-ubyte.gz")
    assert y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


@pytest.mark.parametrize(
    ("name", "sizes", "completeness"),
    [("cifar10", (10_000, 10_000), "part"), ("svhn", (554, 486), "part")],
)
def test_real_parts_have_the_sizes_written_beside_them(data_root, name, sizes, completeness):
    splits = load(name, data_root)
    if splits.spec.completeness != completeness:
        pytest.skip(f"another form of {name} is there")
    y = everything(splits)
    assert (len(y), len(splits.test)) == sizes
    if name == "cifar10":
        assert splits.test.tensors.y.bincount().tolist() == [1000] * 10
