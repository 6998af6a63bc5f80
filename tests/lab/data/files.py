"""Small files in each public format, with random content."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from snopt.lab.data import REGISTRY

#: Examples of the public training and test parts, as written by `write_all`.
SIZES = {
    "mnist": (100, 20),
    "svhn": (100, 20),
    "cifar10": (100, 20),
    "spoken_arabic_digits": (200, 100),
    "articulary_word_recognition": (40, 12),
    "character_trajectories": (40, 12),
    "gas": (90, 10),
    "miniboone": (90, 10),
}


@contextmanager
def small_registry() -> Iterator[None]:
    """While this lasts, the public sizes are those above."""
    with pytest.MonkeyPatch.context() as patch:
        for name, sizes in SIZES.items():
            entry = REGISTRY[name]
            forms = tuple(replace(form, sizes=form.sizes and sizes) for form in entry.forms)
            patch.setitem(REGISTRY, name, replace(entry, forms=forms))
        yield


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def in_folder(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_idx(path: Path, values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    content = gzip.compress(header + values.astype(np.uint8).tobytes())
    in_folder(path).write_bytes(content)
    return content


def write_mnist(root: Path, sizes=(60, 20)) -> None:
    for prefix, count in zip(("train", "t10k"), sizes, strict=True):
        images = random(count).integers(0, 256, (count, 28, 28))
        write_idx(root / f"mnist/{prefix}-images-idx3-ubyte.gz", images)
        write_idx(root / f"mnist/{prefix}-labels-idx1-ubyte.gz", np.arange(count) % 10)


def write_cifar(path: Path, count: int, seed: int = 0) -> np.ndarray:
    records = random(seed).integers(0, 256, (count, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(count) % 10
    records.tofile(in_folder(path))
    return records


def write_svhn(path: Path, count: int) -> np.ndarray:
    """Digits 1 to 10 in turn, where 10 stands for 0."""
    x = random(count).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
    savemat(in_folder(path), {"X": x, "y": (np.arange(count) % 10 + 1)[:, None].astype(np.uint8)})
    return x


def write_ts(path: Path, series: list[np.ndarray], labels: list[str]) -> None:
    """``series``: each [channels, length]; NaN is written as ``?``."""
    classes = " ".join(sorted(set(labels)))
    header = f"@problemName x\n@timeStamps false\n@classLabel true {classes}\n@data\n"
    lines = [
        ":".join(",".join("?" if np.isnan(v) else repr(float(v)) for v in row) for row in x)
        + f":{label}\n"
        for x, label in zip(series, labels, strict=True)
    ]
    # A comment in Latin-1, which is no UTF-8.
    in_folder(path).write_bytes(
        b"#pages 119\x96127, M\xfcller\n" + (header + "".join(lines)).encode()
    )


def random_series(count: int, channels: int, lengths: tuple[int, int]) -> list[np.ndarray]:
    draw = random(count)
    low, high = lengths
    return [
        # The first is the longest, so that all files of a data set have the same L.
        3 + 2 * draw.standard_normal((channels, high if i == 0 else draw.integers(low, high + 1)))
        for i in range(count)
    ]


def write_uea(root: Path, name: str, channels: int, lengths: tuple[int, int], sizes) -> None:
    for part, count in zip(("TRAIN", "TEST"), sizes, strict=True):
        series = random_series(count, channels, lengths)
        write_ts(root / name / f"{name}_{part}.ts", series, [f"{i % 4}.0" for i in range(count)])


def write_utterances(path: Path, series: list[np.ndarray]) -> None:
    """``series``: each [length, coefficients]."""
    blocks = [
        "            \n" + "".join(" ".join(map(repr, row)) + " \n" for row in x.tolist())
        for x in series
    ]
    in_folder(path).write_text("".join(blocks))


def write_arabic(root: Path, sizes) -> None:
    for part, count in zip(("Train", "Test"), sizes, strict=True):
        series = [x.T for x in random_series(count, 13, (4, 9))]
        write_utterances(root / "SpokenArabicDigits" / f"{part}_Arabic_Digit.txt", series)


def sensors(count: int) -> np.ndarray:
    """Sixteen sensors, of which the first eight nearly repeat the last eight."""
    last = random(count).standard_normal((count, 8)) * 50 + 1000
    return np.concatenate([2 * last + 0.01, last], axis=1)


def write_ethylene(path: Path, table: np.ndarray) -> None:
    rows = np.concatenate([np.zeros((len(table), 3)), table], axis=1)
    lines = [" ".join(f"{v:.6f}" for v in row) for row in rows]
    text = "Time (seconds), CO conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)\n"
    in_folder(path).write_text(text + "\n".join(lines) + "\n")


def write_air_quality(path: Path, table: np.ndarray) -> None:
    """``table``: eight columns, in the order of the file."""
    head = "Date;Time;CO(GT);PT08.S1(CO);NMHC(GT);C6H6(GT);PT08.S2(NMHC);NOx(GT);PT08.S3(NOx);"
    head += "NO2(GT);PT08.S4(NO2);PT08.S5(O3);T;RH;AH;;\n"

    def line(row: np.ndarray) -> str:
        a, b, c, d, e, t, rh, ah = (f"{v:.4f}".replace(".", ",") for v in row)
        return f"10/03/2004;18.00.00;2,6;{a};150;11,9;{b};166;{c};113;{d};{e};{t};{rh};{ah};;\n"

    text = head + "".join(map(line, table)) + ";;;;;;;;;;;;;;;;\n" * 3
    in_folder(path).write_text(text)


def write_hdf(path: Path, **tables: np.ndarray) -> None:
    with h5py.File(in_folder(path), "w") as file:
        for name, table in tables.items():
            file[name] = table


def write_all(root: Path) -> Path:
    """Every data set that is read from files, whole, with the sizes above."""
    write_mnist(root, SIZES["mnist"])
    for part, count in zip(("train", "test"), SIZES["svhn"], strict=True):
        write_svhn(root / f"svhn/{part}_32x32.mat", count)
    for i in range(1, 6):
        write_cifar(root / f"cifar10/data_batch_{i}.bin", 20, seed=i)
    write_cifar(root / "cifar10/test_batch.bin", 20, seed=6)
    write_arabic(root, SIZES["spoken_arabic_digits"])
    for name, key, channels, lengths in (
        ("ArticularyWordRecognition", "articulary_word_recognition", 9, (14, 14)),
        ("CharacterTrajectories", "character_trajectories", 3, (6, 18)),
    ):
        write_uea(root, name, channels, lengths, SIZES[key])
    np.save(in_folder(root / "miniboone/data.npy"), random().standard_normal((100, 43)) * 7 + 1)
    np.save(in_folder(root / "gas/ethylene_CO.npy"), sensors(100))
    return root


def tar(members: dict[str, bytes], *, link: tuple[str, str] | None = None) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        if link:
            entry = tarfile.TarInfo(link[0])
            entry.type, entry.linkname = tarfile.SYMTYPE, link[1]
            archive.addfile(entry)
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return sink.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()
