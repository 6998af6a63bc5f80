"""MNIST, SVHN and CIFAR10, read from the files that their authors publish."""

from __future__ import annotations

import io
import math
import struct
from functools import reduce
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from snopt.lab.data.archives import inflate
from snopt.lab.data.errors import DataCorrupted, parsing
from snopt.lab.data.prepare import image_splits
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Batch, Preprocessing, Splits

#: Bytes of the largest decompressed file; MNIST has 47 million and SVHN 225 million.
LARGEST_IDX, LARGEST_MAT = 1 << 26, 1 << 28


def mnist(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load handwritten digits, 1 x 28 x 28."""
    train_x, train_y, test_x, test_y = found.paths
    train, test = _idx_pair(train_x, train_y), _idx_pair(test_x, test_y)
    found.check(len(train), len(test))
    return image_splits(found, train, test, preprocessing)


def svhn(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load digits of house numbers, 3 x 32 x 32.

    The paper's loader also reads the training file for testing, and ``paper`` does the same: its
    ``test`` is ``train`` and ``valid`` together.
    """
    train, test = map(read_svhn, found.paths)
    found.check(len(train), len(test))
    return image_splits(found, train, train if preprocessing == "paper" else test, preprocessing)


def cifar10(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load photographs of ten classes, 3 x 32 x 32."""
    test, *batches = map(read_cifar, found.paths)
    train = reduce(Batch.joined, batches)
    found.check(len(train), len(test))
    return image_splits(found, train, test, preprocessing)


# ------------------------------------------------------------------------------ readers


def read_idx(path: Path) -> Tensor:
    """Read a gzipped idx file of bytes, the format of MNIST.

    Two zero bytes, the type (8 for bytes), the number of dimensions (at most 3), each dimension
    as a big-endian 32-bit integer, then the values.

    Returns:
        a uint8 tensor of the file's shape.

    Raises:
        DataCorrupted: the file does not have this format, or is incomplete.
    """
    raw = inflate(path.read_bytes(), LARGEST_IDX, path)
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or raw[3] > 3 or len(raw) < 4 + 4 * raw[3]:
        raise DataCorrupted(path, "it is not an idx file of bytes")
    start = 4 + 4 * raw[3]
    shape = struct.unpack_from(f">{raw[3]}I", raw, 4)
    if len(raw) != start + math.prod(shape):
        raise DataCorrupted(path, f"its shape is {shape}, but it has {len(raw) - start} values")
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).copy()).reshape(shape)


def _idx_pair(images: Path, labels: Path) -> Batch:
    x, y = read_idx(images), read_idx(labels)
    if x.shape[1:] != (28, 28):
        raise DataCorrupted(images, f"its shape is {tuple(x.shape)}, not (N, 28, 28)")
    if y.shape != x.shape[:1]:
        shapes = f"{tuple(y.shape)} does not fit {tuple(x.shape)} of {images.name}"
        raise DataCorrupted(labels, f"its shape {shapes}")
    return Batch(x[:, None], _classes(y.long(), labels))


def read_cifar(path: Path) -> Batch:
    """Read one file of CIFAR's binary version: records of a label and 3 x 32 x 32 bytes.

    Raises:
        DataCorrupted: the file is not a whole number of such records.
    """
    raw = torch.from_numpy(np.fromfile(path, np.uint8))
    if raw.numel() == 0 or raw.numel() % 3073:
        raise DataCorrupted(path, f"its {raw.numel()} bytes are not whole records of 3073")
    records = raw.reshape(-1, 3073)
    x = records[:, 1:].reshape(-1, 3, 32, 32)
    return Batch(x, _classes(records[:, 0].long(), path))


def read_svhn(path: Path) -> Batch:
    """Read SVHN's cropped digits: MATLAB 5, ``X`` 32 x 32 x 3 x N, ``y`` N x 1, 10 for zero.

    Raises:
        DataCorrupted: the file does not have this format.
    """
    from scipy.io import loadmat

    with parsing(path, "SVHN's MATLAB 5 file"):
        content = loadmat(io.BytesIO(_inflate_mat(path)), variable_names=["X", "y"])
        x, y = content["X"], content["y"].ravel()
        if x.dtype != np.uint8 or x.shape != (32, 32, 3, len(y)):
            raise ValueError(f"X has shape {x.shape} and {x.dtype}, y has {len(y)} labels")
        if not np.isin(y, np.arange(11)).all():
            raise ValueError("the labels are not 1 to 10")
    images = torch.from_numpy(np.ascontiguousarray(x.transpose(3, 2, 0, 1)))
    labels = torch.from_numpy(y.astype(np.int64))
    return Batch(images, _classes(torch.where(labels == 10, 0, labels), path))


def _inflate_mat(path: Path) -> bytes:
    """Decompress the variables of a MATLAB 5 file, with a size limit that SciPy does not have.

    After a header of 128 bytes, each variable has a type (15 if it is compressed) and a size.
    """
    raw = path.read_bytes()
    if raw[124:128] != b"\0\1IM":
        raise DataCorrupted(path, "it is not a MATLAB 5 file")
    parts, size, start = [raw[:128]], 128, 128
    while start < len(raw):
        kind, length = struct.unpack_from("<II", raw, start)
        stop = start + 8 + length
        if kind == 15:
            parts.append(inflate(raw[start + 8 : stop], max(0, LARGEST_MAT - size), path))
        else:
            parts.append(raw[start:stop])
        size += len(parts[-1])
        start = stop
    return b"".join(parts)


def _classes(y: Tensor, path: Path) -> Tensor:
    if len(y) == 0 or y.min() < 0 or y.max() > 9:
        raise DataCorrupted(path, "its labels are not the digits 0 to 9")
    return y
