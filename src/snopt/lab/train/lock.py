"""One run at a time in a folder."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from snopt.lab.train.folder import RunFolderError, now, writing

if sys.platform != "win32":  # There the file is written, but holds nobody off.
    import fcntl

__all__ = ["FolderInUse", "FolderLock"]


class FolderInUse(RunFolderError):
    """Another process is training in the folder."""


class FolderLock:
    """Hold a folder for one process.

    The file ``lock`` says who holds it. What holds others off is the operating system's lock on
    that file, which ends with the process, however it ends: a file left behind by a killed run
    is simply taken over.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with FolderLock(folder):
        ...     FolderLock(folder).acquire()
        Traceback (most recent call last):
        snopt.lab.train.lock.FolderInUse: ... is in use: process ... on ... trains in it since ...
        >>> (folder / "lock").exists()
        False
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is not locked yet.

        Args:
            folder: The run folder, which exists.
        """
        self.folder, self.path = folder, folder / "lock"
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the folder, or raise :class:`FolderInUse`."""
        with writing(self.path):
            while True:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    self._seize(handle)
                    # The holder before us may have removed the file between our two calls.
                    if self._is_current(handle):
                        break
                except BaseException:
                    os.close(handle)
                    raise
                os.close(handle)
            self._handle = handle
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": now()}
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(owner).encode())

    def _seize(self, handle: int) -> None:
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"{self.folder} is in use: {self._holder()}. Wait for it, stop it (Ctrl-C saves), "
                "or choose another folder."
            ) from None

    def _is_current(self, handle: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        return False

    def _holder(self) -> str:
        try:
            owner = json.loads(self.path.read_text("utf-8"))
            return (
                f"process {owner['pid']} on {owner['host']} trains in it since {owner['started']}"
            )
        except (OSError, ValueError, KeyError, TypeError):
            return "another process trains in it"

    def release(self) -> None:
        """Give the folder free."""
        if self._handle is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
