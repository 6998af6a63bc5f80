"""Errors about the files of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class DataError(Exception):
    """Base class of the errors about data sets."""


class DataNotFound(DataError, FileNotFoundError):
    """Files are missing. The message names them, their folder and their public source."""


class DataCorrupted(DataError, ValueError):
    """A file does not have the expected content.

    Attributes:
        reason: what is wrong with the file.
    """

    def __init__(self, path: Path | str, reason: str, *, line: int | None = None) -> None:
        """Create the error message from the file, the reason and the remedy.

        Args:
            path: the file.
            reason: what is wrong with the file.
            line: line number, counted from 1.
        """
        self.reason = reason if line is None else f"line {line}: {reason}"
        super().__init__(f"{path} cannot be used: {self.reason}. Delete it and fetch it again.")


class DownloadFailed(DataError, OSError):
    """A download failed or returned an unexpected file. No file was kept."""


@contextmanager
def parsing(path: Path, what: str) -> Iterator[None]:
    """Turn any exception of a parser into `DataCorrupted`.

    NumPy, SciPy, h5py, zipfile and tarfile raise many different exceptions for a damaged file.

    Args:
        path: the file.
        what: expected format, for the message.
    """
    try:
        yield
    except (DataError, ImportError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        detail = str(error) or type(error).__name__
        raise DataCorrupted(path, f"it cannot be read as {what} ({detail})") from error
