"""Gas and Miniboone, as prepared for masked autoregressive flows (MAF, Papamakarios et al. 2017).

MAF's Gas table is published as a pickle, ``ethylene_CO.pickle``. Unpickling can run any code, so it
is not read here; the same numbers are read from UCI's text, or from an ``.npy`` or HDF5 file
converted from the pickle (docs/models.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from snopt.lab.data.errors import DataCorrupted, parsing
from snopt.lab.data.prepare import column_statistics, hold_out, shuffled, table_splits
from snopt.lab.data.sources import Found
from snopt.lab.data.spec import Preprocessing, Splits
from snopt.lab.data.text import Lines, check_table, filled, parse_rows

#: Columns of UCI's text: the time, two concentrations, sixteen sensors.
ETHYLENE_COLUMNS, SENSORS = 19, 16
#: Values of the largest table; UCI's text of Gas has 80 million.
LARGEST_TABLE = 1 << 27
#: The fraction of UCI's rows that MAF drew first.
DRAWN = 0.25
#: The fraction of Gas that the paper uses (Appendix, "Dataset").
PAPER_PART = 0.1


def miniboone(found: Found, preprocessing: Preprocessing) -> Splits:
    """Load data of a neutrino experiment, 43 columns.

    MAF, and hence ``paper``, standardises with the statistics of training and validation rows. If
    only MAF's validation and test files are available, which are already standardised, a tenth of
    the former is ``valid`` and the rest ``train``, and ``paper`` does not scale them again.
    """
    tables = [read_table(path) for path in found.paths]
    for path, table in zip(found.paths, tables, strict=True):
        _check_columns(table, 43, path)
    spec = found.spec("table", (43,), preprocessing)
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
    """Load readings of gas sensors, 8 columns.

    MAF, and hence ``paper``, standardises with the statistics of all rows, including the test rows;
    the paper uses a tenth of each part. The stand-in is shuffled before it is split.
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
    _check_columns(rows, 8, path)
    train, valid, test = _in_order(rows)
    found.check(len(train) + len(valid), len(test))
    scale = column_statistics(rows if preprocessing == "paper" else train)
    if preprocessing == "paper" and found.form.completeness == "whole":
        train, valid, test = map(tenth, (train, valid, test))
    return table_splits(found.spec("table", (8,), preprocessing), train, valid, test, scale)


def _check_columns(rows: Tensor, columns: int, path: Path) -> None:
    if rows.shape[1] != columns:
        raise DataCorrupted(path, f"it gives {rows.shape[1]} columns instead of {columns}")


def tenth(rows: Tensor) -> Tensor:
    """Draw the part that the paper uses: 85,217 rows of Gas to train and 10,520 to test."""
    return rows[shuffled(len(rows))[: max(1, int(PAPER_PART * len(rows)))]]


def _in_order(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split as MAF: the last tenth of the rows is test, the last tenth of the others valid."""
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

    Returns:
        the table as float64 ``[N, D]``.

    Raises:
        DataCorrupted: the file has no such table, or a value is not a finite number.
    """
    with parsing(path, "a table"):
        if path.suffix == ".npy":
            # Memory-mapped first, so a wrong shape in the header allocates nothing.
            table = _as_float64(np.lib.format.open_memmap(path, mode="r"))
        else:
            table = _read_hdf(path)
    return torch.from_numpy(check_table(table, path))


def _as_float64(table: Any) -> NDArray[np.float64]:
    """Copy a table from a file to memory, after checking its type and shape."""
    if table.ndim != 2 or table.dtype.kind not in "fiu" or 0 in table.shape:
        raise ValueError(f"it holds {table.dtype} of shape {table.shape}")
    if table.size > LARGEST_TABLE:
        raise ValueError(f"its shape {table.shape} is too large")
    return np.array(table, np.float64)


def _read_hdf(path: Path) -> NDArray[np.float64]:
    """Read the only table in an HDF5 file, without following links to other files."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need h5py: pip install 'snopt[lab]'") from error

    links: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        file.visititems_links(links.__setitem__)
        for name, link in links.items():
            if not isinstance(link, h5py.HardLink):
                raise ValueError(f"it contains a link, {name}")
        nodes = [file[name] for name in links if isinstance(file[name], h5py.Dataset)]
        tables = [node for node in nodes if node.ndim == 2 and node.dtype.kind in "fiu"]
        if len(tables) != 1:
            raise ValueError(f"it contains {len(tables)} tables, but one is expected")
        if tables[0].external or tables[0].is_virtual:
            raise ValueError("its values are stored in other files")
        return _as_float64(tables[0])


def read_ethylene(path: Path, chunk: int = 1 << 26) -> Tensor:
    """Read the sensors from UCI's ``ethylene_CO.txt``: a header, then 19 numbers per line.

    Args:
        path: the file.
        chunk: characters read at a time; the whole text would take half a gigabyte.

    Returns:
        the sixteen sensors, float32 ``[N, 16]``.

    Raises:
        DataCorrupted: a line is not 19 numbers.
    """
    parts, first = [], 2
    with path.open(encoding="latin-1") as stream:
        stream.readline()
        while lines := stream.readlines(chunk):
            table = parse_rows(filled(lines, first), ETHYLENE_COLUMNS, path)
            first += len(lines)
            parts.append(torch.from_numpy(table[:, -SENSORS:]).float())
    if not parts:
        raise DataCorrupted(path, "there is nothing after its first line")
    return torch.cat(parts)


def read_air_quality(path: Path) -> Tensor:
    """Read UCI's Air Quality: five gas sensors, temperature, relative and absolute humidity.

    The file has semicolons between columns, decimal commas, and -200 for a missing value. Rows with
    a missing value in one of these eight columns are skipped.

    Raises:
        DataCorrupted: the columns are not there, or a value is not a number.
    """
    header, *lines = path.read_text("latin-1").split("\n")
    names = header.split(";")
    columns = [i for i, n in enumerate(names) if n.startswith("PT08.") or n in ("T", "RH", "AH")]
    if len(columns) != 8:
        raise DataCorrupted(path, "its columns are not those of Air Quality", line=1)
    rows: Lines = []
    for number, line in enumerate(lines, 2):
        cells = line.replace(",", ".").split(";")
        if not any(cells):  # the file ends in many such lines
            continue
        if len(cells) != len(names):
            reason = f"it has {len(cells)} columns instead of {len(names)}"
            raise DataCorrupted(path, reason, line=number)
        rows.append((number, ";".join(cells[i] for i in columns)))
    table = parse_rows(rows, 8, path, ";")
    return torch.from_numpy(table[(table != -200).all(axis=1)])
