"""The run folder: atomic writes, a lock, and one error that names the file and the remedy."""

from __future__ import annotations

import json
import os
import platform
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

import torch
from filelock import FileLock, Timeout

PACKAGES = ("snopt", "torch", "torchdiffeq", "numpy", "scipy")

#: Version of the run folder format, in ``config.json``, start records and checkpoints.
FORMAT = 1

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag.


class RunFolderError(RuntimeError):
    """The run folder cannot be used: not writable, disk full, damaged, or it holds another run."""


class FolderInUse(RunFolderError):
    """Another process is training in the folder."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an :class:`OSError` into an error that names the file and the remedy.

    Example:
        >>> with writing(Path("/runs/a")):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        snopt.lab.train.folder.RunFolderError: cannot write /runs/a: No space left on device. ...
    """
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"cannot write {path}: {error.strerror or error}. Earlier files are intact: free disk "
            "space or make the folder writable, then resume the run."
        ) from error


def as_json(value: Any) -> Any:
    """Convert a value for JSON: numbers that are not finite to null, unknown types to text.

    Example:
        >>> as_json({"loss": float("nan"), "lr": [0.1, 1], "path": Path("a")})
        {'loss': None, 'lr': [0.1, 1], 'path': 'a'}
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, torch.Tensor):
        return as_json(value.tolist())
    return str(value)


def create(path: Path) -> BinaryIO:
    """Open a new file for writing. An existing file is removed first; links are not followed."""
    path.unlink(missing_ok=True)
    return open(path, "xb")


def replace_bytes(
    path: Path, data: bytes | memoryview, then: Callable[[], None] = lambda: None
) -> None:
    """Write a file atomically: readers see the old or the new content, even after a power failure.

    Args:
        path: the file; its folder is created if it does not exist.
        data: the new content.
        then: called when the content is on disk under a temporary name, before it is renamed.
    """
    temporary = path.with_name(path.name + ".tmp")
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        try:
            with create(temporary) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            then()
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    with suppress(OSError):
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)  # The new name survives a power failure.
        finally:
            os.close(handle)


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    replace_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    replace_text(path, json.dumps(as_json(value), indent=2) + "\n")


def read_config(folder: Path) -> dict[str, Any]:
    """Read the ``config.json`` of a run folder.

    Raises:
        RunFolderError: there is none, or it is damaged.
    """
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunFolderError(
            f"{folder} is not a run folder: it contains no config.json; pass the folder that was "
            "given as --out."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path} is damaged: {error}; start the run again.") from error
    if not isinstance(content, dict):
        raise RunFolderError(f"{path} is damaged: not a JSON object; start the run again.")
    return content


def now() -> str:
    """Return the current time in UTC, in ISO format."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def package_version(name: str) -> str | None:
    """Return the installed version of a package, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Return software, machine and command line of a run, for ``environment.json``."""
    cuda = device.type == "cuda"
    return {
        "started": now(),
        "command": shlex.join(sys.orig_argv),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if cuda else str(device),
        "processes": processes,
    }


class FolderLock:
    """Lock a folder for one process, with an advisory lock on its file ``lock``.

    The operating system releases the lock when the process ends, for any reason. The file names its
    latest holder and its run, and is not removed after a release.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with FolderLock(folder):
        ...     FolderLock(folder).acquire()
        Traceback (most recent call last):
        snopt.lab.train.folder.FolderInUse: ... is in use: process ... on ... has been training ...
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "lock"
        self._lock = FileLock(self.path)
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise :class:`FolderInUse`."""
        with writing(self.path):
            if self.path.is_symlink():
                raise RunFolderError(f"{self.path} is a symbolic link; remove it.")
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                raise FolderInUse(
                    f"{self.folder} is in use: {self._holder()}. Wait for it, stop it (Ctrl-C "
                    "saves), or choose another folder."
                ) from None
            self._handle = os.open(self.path, os.O_RDWR | NO_FOLLOW)
        self.sign()

    def sign(self, run: str | None = None) -> None:
        """Write the holder of the lock, and the identity of its run, to the file."""
        assert self._handle is not None
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": now(), "run": run}
        with writing(self.path):
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.ftruncate(self._handle, 0)
            os.write(self._handle, json.dumps(owner).encode())

    def check(self) -> None:
        """Raise :class:`RunFolderError` if the folder was removed or replaced.

        The file ``lock`` stays open while the lock is held, so no other file can have its inode
        number.
        """
        if self._handle is None:
            return
        with suppress(OSError):
            if os.path.samestat(os.lstat(self.path), os.fstat(self._handle)):
                return
        raise RunFolderError(
            f"{self.folder} was removed or replaced during the run; the run stops. The new "
            "content of the folder was not changed; start the run again."
        )

    def _holder(self) -> str:
        try:
            owner = json.loads(self.path.read_text("utf-8"))
            return (
                f"process {owner['pid']} on {owner['host']} has been training in it since "
                f"{owner['started']}"
            )
        except (OSError, ValueError, KeyError, TypeError):
            return "another process is training in it"

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._lock.release()

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def in_use(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder."""
    if not (folder / "lock").is_file():
        return False
    try:
        with FolderLock(folder):
            return False
    except FolderInUse:
        return True
