"""What can be wrong with a data set's files."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DataCorrupted", "DataError", "DataNotFound", "DownloadFailed"]


class DataError(Exception):
    """A data set could not be had."""


class DataNotFound(DataError, FileNotFoundError):
    """Files are missing. The message names them, their folder and their public source."""


class DataCorrupted(DataError, ValueError):
    """A file is not what its format says it should be.

    Attributes:
        reason: what is wrong with it.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        """Say what is wrong with the file, and what to do about it.

        Args:
            path: the file.
            reason: what is wrong with it.
        """
        super().__init__(f"{path} cannot be used: {reason}. Delete it and fetch it again.")
        self.reason = reason


class DownloadFailed(DataError, OSError):
    """A file could not be downloaded, or is not the one wanted. Nothing of it was kept."""
