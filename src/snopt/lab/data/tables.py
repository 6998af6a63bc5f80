"""Gas and Miniboone, as prepared for masked autoregressive flows (MAF, Papamakarios et al. 2017).

MAF's Gas table is published as a pickle, ``ethylene_CO.pickle``. Unpickling runs whatever a file
says, so it is not read here; the same numbers are read from UCI's text, or from an ``.npy`` or
HDF5 file that someone who trusts the pickle has made of it (docs/data.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from snopt.lab.data.errors import DataCorrupted
from snopt.lab.data.prepare import column_statistics, hold_out, shuffled, table_splits
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Preprocessing, Splits
from snopt.lab.data.text import parse_numbers

__all__ = [
    "drop_correlated",
    "gas",
    "miniboone",
    "read_air_quality",
    "read_ethylene",
    "read_table",
    "tenth",
]

#: Columns of UCI's text: the time, two concentrations, sixteen sensors.
ETHYLENE_COLUMNS, SENSORS = 19, 16
#: The part of UCI's rows that MAF drew before anything else.
DRAWN = 0.25
#: The part of Gas that the paper uses (Appendix, "Dataset").
PAPER_PART = 0.1


def miniboone(found: Found, preprocessing: Preprocessing) -> Splits:
    """A neutrino experiment, 43 columns.

    MAF, and hence ``paper``, scales by training and validation rows together. MAF's validation and
    test files, which may be all there is, are so scaled already: a tenth of the former then
    validates, the rest of it trains, and ``paper`` leaves the scale alone.
    """
    tables = [read_table(path) for path in found.paths]
    spec = found.spec("table", (tables[0].shape[1],), preprocessing)
    if found.form.completeness == "part":
        rows, test = tables
        kept, held = hold_out(len(rows))
        train, valid = rows[kept], rows[held]
        scale = (torch.tensor(0.0), torch.tensor(1.0))
    else:
        train, valid, test = _in_order(tables[0])
        scale = column_statistics(torch.cat([train, valid]))
    found.check(len(train) + len(valid), len(test))
    if preprocessing == "standard":
        scale = column_statistics(train)
    return table_splits(spec, train, valid, test, scale)


def gas(found: Found, preprocessing: Preprocessing) -> Splits:
    """Readings of gas sensors, 8 columns.

    MAF, and hence ``paper``, scales by all rows, those to test included; the paper uses a tenth
    of each part. The stand-in is shuffled and then split as the others are.
    """
    (path,) = found.paths
    if path.suffix == ".csv":
        rows = read_air_quality(path)
        rows = rows[shuffled(len(rows))]
    elif path.suffix == ".txt":
        rows = read_ethylene(path)
        rows = drop_correlated(rows[hold_out(len(rows), DRAWN)[1]])
    else:
        rows = read_table(path)
        if rows.shape[1] == ETHYLENE_COLUMNS:
            rows = rows[:, -SENSORS:]
        if rows.shape[1] == SENSORS:
            rows = drop_correlated(rows)
    if rows.shape[1] != 8:
        raise DataCorrupted(path, f"it gives {rows.shape[1]} columns instead of 8")

    train, valid, test = _in_order(rows)
    found.check(len(train) + len(valid), len(test))
    scale = column_statistics(rows if preprocessing == "paper" else train)
    if preprocessing == "paper" and found.form.completeness == "whole":
        train, valid, test = map(tenth, (train, valid, test))
    return table_splits(found.spec("table", (8,), preprocessing), train, valid, test, scale)


def tenth(rows: Tensor) -> Tensor:
    """Draw the part that the paper uses: of all of Gas, 85,217 rows to train and 10,520 to test."""
    return rows[shuffled(len(rows))[: max(1, int(PAPER_PART * len(rows)))]]


def _in_order(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """MAF's split: the last tenth of the rows to test, the last tenth of the others to validate."""
    test = int(0.1 * len(rows))
    valid = int(0.1 * (len(rows) - test))
    train, valid_rows, test_rows = rows.split([len(rows) - test - valid, valid, test])
    return train, valid_rows, test_rows


def drop_correlated(rows: Tensor, limit: float = 0.98) -> Tensor:
    """Drop columns, from the left, until no two have a correlation above ``limit``.

    Args:
        rows: the table ``[N, D]``.
        limit: the correlation; negative ones do not count.

    Example:
        >>> a, b = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 0.0, 1.0])
        >>> drop_correlated(torch.stack([a, b, 2 * a], dim=1))
        tensor([[1., 0.],
                [0., 2.],
                [1., 4.]])
    """
    close = torch.corrcoef(rows.double().T) > limit
    kept = torch.arange(rows.shape[1])
    while (crowded := close[kept][:, kept].sum(1) > 1).any():
        first = int(crowded.int().argmax())
        kept = torch.cat([kept[:first], kept[first + 1 :]])
    return rows[:, kept]


# ------------------------------------------------------------------------------ readers


def read_table(path: Path) -> Tensor:
    """Read a table of numbers from an ``.npy`` file, or from an HDF5 file that holds one.

    Raises:
        DataCorrupted: if there is no such table in it.
    """
    try:
        rows = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _read_hdf(path)
    except (ValueError, OSError, EOFError) as error:
        raise DataCorrupted(path, f"it does not read as a table ({error})") from error
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise DataCorrupted(path, f"it holds {rows.dtype} of shape {rows.shape}, not a table")
    return _finite(torch.from_numpy(rows), path)


def _read_hdf(path: Path) -> Any:
    """The one two-dimensional array of numbers in an HDF5 file, whatever its name."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need h5py: pip install 'snopt[lab]'") from error

    found: list[Any] = []

    def visit(_: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.ndim == 2 and node.dtype.kind in "fiu":
            found.append(node)

    with h5py.File(path, "r") as file:
        file.visititems(visit)
        if len(found) != 1:
            raise ValueError(f"{len(found)} tables in it, where one is expected")
        return found[0][:]


def read_ethylene(path: Path, chunk: int = 1 << 26) -> Tensor:
    """Read the sensors from UCI's ``ethylene_CO.txt``: a header, then 19 numbers a line.

    Args:
        path: the file.
        chunk: characters read at a time; the whole text would take half a gigabyte.

    Returns:
        The sixteen sensors, float32 ``[N, 16]``.

    Raises:
        DataCorrupted: if a line is short.
    """
    parts = []
    with path.open(encoding="latin-1") as stream:
        stream.readline()
        while lines := stream.readlines(chunk):
            numbers = parse_numbers("".join(lines), " ", path)
            if len(numbers) % ETHYLENE_COLUMNS:
                raise DataCorrupted(path, f"not every line has {ETHYLENE_COLUMNS} numbers")
            table = numbers.reshape(-1, ETHYLENE_COLUMNS)[:, -SENSORS:]
            parts.append(torch.from_numpy(table.astype(np.float32)))
    if not parts:
        raise DataCorrupted(path, "there is nothing after its first line")
    return _finite(torch.cat(parts), path)


def read_air_quality(path: Path) -> Tensor:
    """Read UCI's Air Quality: five gas sensors, temperature, relative and absolute humidity.

    Semicolons between columns, decimal commas, -200 for a missing value; rows with one among
    these eight are left out.

    Raises:
        DataCorrupted: if the columns are not there.
    """
    header, *lines = path.read_text("latin-1").splitlines() or [""]
    names = header.split(";")
    columns = [i for i, n in enumerate(names) if n.startswith("PT08.") or n in ("T", "RH", "AH")]
    cells = [line.split(";") for line in lines if line.strip("; ")]
    if len(columns) != 8 or any(len(row) != len(names) for row in cells):
        raise DataCorrupted(path, "its columns are not those of Air Quality, or a row is cut short")
    text = " ".join(row[i] for row in cells for i in columns).replace(",", ".")
    rows = parse_numbers(text, " ", path).reshape(-1, 8)
    return torch.from_numpy(rows[(rows != -200).all(axis=1)])


def _finite(rows: Tensor, path: Path) -> Tensor:
    if not rows.isfinite().all():
        raise DataCorrupted(path, "it has values that are NaN or infinite")
    return rows
