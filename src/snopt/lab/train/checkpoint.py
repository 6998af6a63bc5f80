"""Checkpoints: written as a whole or not at all, checked when read, the last few kept."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from snopt.lab.train.folder import RunFolderError, replace_text, sync_folder, writing

__all__ = [
    "check_readable",
    "checkpoints",
    "latest_whole",
    "load_checkpoint",
    "save_checkpoint",
    "set_aside",
]

NAME = re.compile(r"step-(\d{8,})\.pt")


def iteration_of(path: Path) -> int:
    """Return the number of updates that a checkpoint's name tells.

    Example:
        >>> iteration_of(Path("step-00000120.pt"))
        120
    """
    found = NAME.fullmatch(path.name)
    return int(found[1]) if found else -1


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run folder, oldest first."""
    found = (folder / "checkpoints").glob("step-*.pt")
    return sorted((path for path in found if iteration_of(path) >= 0), key=iteration_of)


def checksum_of(path: Path) -> Path:
    """Return where the checksum of a checkpoint is kept."""
    return path.with_name(path.name + ".sha256")


# ------------------------------------------------------------------------------ writing


class _Hashing:
    """A file that knows the checksum of what was written to it, and why writing failed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.sha = file, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.sha.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            # torch would turn it into a RuntimeError about positions.
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _write_state(path: Path, state: dict[str, Any]) -> str:
    """Write a state so that it is on the disk afterwards; return its checksum."""
    with open(path, "wb") as file:
        hashing = _Hashing(file)
        try:
            torch.save(state, hashing)  # type: ignore[arg-type]
        except RuntimeError:
            if hashing.error is not None:
                raise hashing.error from None
            raise
        file.flush()
        os.fsync(file.fileno())
    return hashing.sha.hexdigest()


def save_checkpoint(folder: Path, iteration: int, state: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint and remove old ones.

    It is written under another name, forced to the disk, and renamed: at any moment, also when
    the power fails, a file called ``step-*.pt`` is a whole checkpoint with its checksum beside it.

    Args:
        folder: The run folder.
        iteration: Updates made so far; part of the file's name.
        state: Tensors and plain values.
        keep: How many checkpoints to keep, this one included.

    Returns:
        The file.

    Raises:
        RunFolderError: If it cannot be written; older checkpoints are untouched then.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for i in range(4):
        ...     path = save_checkpoint(folder, i, {"weight": torch.ones(2)}, keep=2)
        >>> path.name, [p.name for p in checkpoints(folder)]
        ('step-00000003.pt', ['step-00000002.pt', 'step-00000003.pt'])
    """
    path = folder / "checkpoints" / f"step-{iteration:08d}.pt"
    beside = path.with_name(path.name + ".tmp")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            sha = _write_state(beside, state)
            # The checksum first: a checkpoint never lacks one.
            replace_text(checksum_of(path), f"{sha}  {path.name}\n")
            beside.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    for old in checkpoints(folder)[:-keep]:
        with suppress(OSError):
            old.unlink()
            checksum_of(old).unlink()
    return path


# ------------------------------------------------------------------------------ reading


def _read(path: Path) -> dict[str, Any]:
    expected = checksum_of(path).read_text("utf-8").split()[0]
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    if sha.hexdigest() != expected:
        raise ValueError("its checksum is not the one that was written")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def latest_whole(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Find the latest checkpoint that is whole.

    Args:
        folder: The run folder.

    Returns:
        What was saved, None if there is no checkpoint; and a sentence for each damaged
        checkpoint that was passed over.

    Raises:
        RunFolderError: If there are checkpoints and all are damaged.
    """
    complaints: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            return _read(path), complaints
        # Whatever the reading stumbles over, the file is of no use.
        except Exception as error:  # noqa: BLE001
            complaints.append(f"{path} is damaged ({error}); the checkpoint before it is used.")
    if complaints:
        raise RunFolderError(
            f"none of the {len(complaints)} checkpoints in {folder} can be read. Start again in "
            "another folder, or remove the folder `checkpoints` to start again in this one."
        )
    return None, []


def load_checkpoint(folder: str | Path) -> dict[str, Any] | None:
    """Read the latest checkpoint of a run folder that is whole.

    A damaged one is passed over with a warning.

    Args:
        folder: The run folder.

    Returns:
        What was saved, on the CPU: ``"model"`` is the model's state, ``"iteration"`` the number of
        updates. None if there is no checkpoint.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = save_checkpoint(folder, 10, {"model": {"weight": torch.ones(2)}}, keep=1)
        >>> load_checkpoint(folder)["model"]["weight"]
        tensor([1., 1.])
    """
    state, complaints = latest_whole(Path(folder))
    for complaint in complaints:
        warnings.warn(complaint, RuntimeWarning, stacklevel=2)
    return state


def check_readable(path: Path) -> None:
    """Make sure that a checkpoint can be loaded with ``weights_only=True``.

    Args:
        path: The checkpoint.

    Raises:
        RunFolderError: If it cannot: better to know now than when it is needed.
    """
    try:
        _read(path)
    except Exception as error:
        raise RunFolderError(
            f"{path} cannot be read back, and so the run could not be resumed: the state_dict of "
            "an optimizer, schedule or model holds something else than tensors and plain values. "
            f"{error}"
        ) from error


def set_aside(folder: Path, after: int) -> None:
    """Rename checkpoints later than an iteration, so that they are not counted as kept ones.

    Args:
        folder: The run folder.
        after: The iteration that is resumed from; whatever is later was found damaged.
    """
    for path in checkpoints(folder):
        if iteration_of(path) > after:
            with writing(path):
                path.replace(path.with_name(path.name + ".damaged"))
                checksum_of(path).unlink(missing_ok=True)
