"""Checkpoints: the state of a run, written atomically, verified when read, the last few kept."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from snopt.lab.train.folder import RunFolderError, replace_text, sync_folder, writing
from snopt.lab.train.parallel import World
from snopt.lab.train.seeding import seed_all, set_rng_state
from snopt.lab.train.task import Metrics, Parts, Task, better

__all__ = [
    "Progress",
    "capture",
    "check_readable",
    "checkpoints",
    "latest_whole",
    "load_checkpoint",
    "restore",
    "save_checkpoint",
    "set_aside",
]

# -------------------------------------------------------------------------------- state


@dataclass
class Progress:
    """How far a run is.

    Attributes:
        iteration: Updates made; it determines which examples come next.
        seconds: Seconds of training, evaluation not counted.
        cpu_seconds: Seconds that the processor worked for it, all threads added up.
        skipped: How many of the latest iterations, in a row, made no update.
        trouble: Why the latest skipped iteration made none.
        evaluated: The iteration of the latest evaluation on the validation examples.
        best: The best validation value of the task's metric.
        last: The latest metrics of each split.
    """

    iteration: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    skipped: int = 0
    trouble: str = ""
    evaluated: int | None = None
    best: float | None = None
    last: dict[str, Metrics] = field(default_factory=dict)

    def advance(self, seconds: float, skipped: str | None, cpu_seconds: float = 0.0) -> None:
        """Count one iteration; ``skipped`` says why it made no update."""
        self.iteration += 1
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.skipped = 0 if skipped is None else self.skipped + 1
        self.trouble = skipped or self.trouble

    def note(self, task: Task, split: str, metrics: Metrics) -> None:
        """Store the metrics of an evaluation."""
        self.last[split] = metrics
        if split == "valid":
            self.evaluated = self.iteration
            if better(task.mode, metrics[task.metric], self.best):
                self.best = metrics[task.metric]


def capture(parts: Parts, progress: Progress, rng: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the content of a checkpoint, tensors and plain values.

    Args:
        parts: The model and its optimizers.
        progress: How far the run is.
        rng: The state of the random numbers of every process.
    """
    return {
        "iteration": progress.iteration,
        "progress": asdict(progress),
        "model": parts.model.state_dict(),
        "kinds": _kinds(parts),
        "optimizers": [optimizer.state_dict() for optimizer in parts.optimizers],
        "schedulers": [scheduler.state_dict() for scheduler in parts.schedulers],
        "horizon": None if parts.horizon is None else parts.horizon.state_dict(),
        "rng": rng,
    }


def _kinds(parts: Parts) -> list[str]:
    """Return the types of the parts; torch would load one optimizer's state into another."""
    horizon = [] if parts.horizon is None else [parts.horizon]
    return [type(part).__name__ for part in (*parts.optimizers, *parts.schedulers, *horizon)]


def restore(state: dict[str, Any], parts: Parts, world: World, seed: int) -> Progress:
    """Restore parts and random numbers from a checkpoint.

    Args:
        state: From :func:`capture`.
        parts: Built in the same way as the parts that were saved.
        world: The processes.
        seed: For processes that the saved run did not have.

    Returns:
        How far the run was.

    Raises:
        RunFolderError: The checkpoint belongs to other parts.
    """
    if state["kinds"] != _kinds(parts):
        raise RunFolderError(
            f"the checkpoint was made with {' and '.join(state['kinds'])}, not with "
            f"{' and '.join(_kinds(parts))}; resume with the parts that the run was started with."
        )
    steppers = [*parts.optimizers, *parts.schedulers]
    saved = [*state["optimizers"], *state["schedulers"]]
    try:
        parts.model.load_state_dict(state["model"])
        for stepper, one in zip(steppers, saved, strict=True):
            stepper.load_state_dict(one)
        if parts.horizon is not None:
            parts.horizon.load_state_dict(state["horizon"])
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"the checkpoint does not fit the model or its optimizer: {error}. Resume with the "
            "parts that the run was started with."
        ) from error
    progress = Progress(**state["progress"])
    if world.rank < len(state["rng"]):
        set_rng_state(state["rng"][world.rank])
    else:
        seed_all(seed, "training", world.rank, progress.iteration)
    return progress


# -------------------------------------------------------------------------------- files

NAME = re.compile(r"step-(\d{8,})\.pt")


def iteration_of(path: Path) -> int:
    """Return the iteration in a checkpoint's name.

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
    """Return the path of a checkpoint's checksum."""
    return path.with_name(path.name + ".sha256")


class _Hashing:
    """A file that computes the checksum of what is written to it, and keeps the first error."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.sha = file, hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.sha.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            # torch would raise a RuntimeError about positions instead.
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _write_state(path: Path, state: dict[str, Any]) -> str:
    """Write a state and flush it to disk; return its checksum."""
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

    The file is written under another name, flushed to disk and renamed: at any moment, also after
    a power failure, a file called ``step-*.pt`` is a complete checkpoint with its checksum.

    Args:
        folder: The run folder.
        iteration: Updates made so far; part of the file's name.
        state: Tensors and plain values.
        keep: How many checkpoints to keep, this one included.

    Returns:
        The file.

    Raises:
        RunFolderError: It cannot be written; older checkpoints are untouched.

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
            # The checksum comes first: a checkpoint never lacks one.
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


def _read(path: Path) -> dict[str, Any]:
    expected = checksum_of(path).read_text("utf-8").split()[0]
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    if sha.hexdigest() != expected:
        raise ValueError("its checksum differs from the one that was written")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def latest_whole(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Read the latest checkpoint that is not damaged.

    Returns:
        The checkpoint, None if there is none; and one sentence per damaged checkpoint.

    Raises:
        RunFolderError: There are checkpoints, and all are damaged.
    """
    complaints: list[str] = []
    for path in reversed(checkpoints(folder)):
        try:
            return _read(path), complaints
        # A file that cannot be read for any reason is damaged.
        except Exception as error:  # noqa: BLE001
            complaints.append(f"{path} is damaged ({error}); using the checkpoint before it.")
    if complaints:
        raise RunFolderError(
            f"none of the {len(complaints)} checkpoints in {folder} can be read. Start over in "
            "another folder, or remove the folder `checkpoints` to start over in this one."
        )
    return None, []


def load_checkpoint(folder: str | Path) -> dict[str, Any] | None:
    """Read the latest checkpoint of a run folder; a damaged one is skipped with a warning.

    Args:
        folder: The run folder.

    Returns:
        The checkpoint, on the CPU: ``"model"`` is the model's state, ``"iteration"`` the number of
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
    """Raise :class:`RunFolderError` if a checkpoint cannot be loaded with ``weights_only=True``."""
    try:
        _read(path)
    except Exception as error:
        raise RunFolderError(
            f"{path} cannot be read back, so the run could not be resumed: the state_dict of an "
            "optimizer, schedule or model contains something other than tensors and plain values. "
            f"{error}"
        ) from error


def set_aside(folder: Path, after: int) -> None:
    """Rename the damaged checkpoints after an iteration, so that they do not count as kept."""
    for path in checkpoints(folder):
        if iteration_of(path) > after:
            with writing(path):
                path.replace(path.with_name(path.name + ".damaged"))
                checksum_of(path).unlink(missing_ok=True)
