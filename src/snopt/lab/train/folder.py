"""Writing to the run folder: whole files or nothing, and one error that says what to do."""

from __future__ import annotations

import json
import os
import platform
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

__all__ = [
    "RunFolderError",
    "as_json",
    "environment",
    "now",
    "replace_text",
    "sync_folder",
    "writing",
    "write_json",
]

PACKAGES = ("snopt", "torch", "torchdiffeq", "numpy", "scipy")


class RunFolderError(RuntimeError):
    """The run folder cannot be used: not writable, disk full, or it holds another run."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure of the operating system into an error that names the file and the remedy.

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
            f"cannot write {path}: {error.strerror or error}. What was written before is kept: "
            "make room, or make the folder writable, and resume the run."
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renamed files of a folder survive a loss of power, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def as_json(value: Any) -> Any:
    """Make a value fit for JSON: what is not finite becomes null, what is unknown its text.

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


def replace_text(path: Path, text: str) -> None:
    """Write a file as a whole: readers see the old one or the new one, also after a power cut."""
    beside = path.with_name(path.name + ".tmp")
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        try:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as a whole."""
    replace_text(path, json.dumps(as_json(value), indent=2) + "\n")


def now() -> str:
    """Return the time, in the form of records."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Describe what a run was computed with.

    Args:
        device: The device of the first process.
        processes: How many processes train together.

    Returns:
        Versions, machine, command line and time.
    """
    cuda = device.type == "cuda"
    return {
        "started": now(),
        "command": shlex.join(sys.orig_argv),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if cuda else str(device),
        "processes": processes,
    }
