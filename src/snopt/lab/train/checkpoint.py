"""Checkpoints: the state of a run, written atomically, verified when read, the last few kept."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import torch
from torch import nn

from snopt.lab.train.folder import (
    FORMAT,
    RunFolderError,
    create,
    replace_text,
    sync_folder,
    writing,
)
from snopt.lab.train.parallel import World
from snopt.lab.train.seeding import seed_all, set_rng_state
from snopt.lab.train.task import Metrics, Parts, Progress

__all__ = [
    "capture",
    "check_readable",
    "checkpoints",
    "latest_usable",
    "load_checkpoint",
    "restore",
    "save_best",
    "save_checkpoint",
    "set_aside",
]

# -------------------------------------------------------------------------------- state


def capture(
    parts: Parts, progress: Progress, rng: list[dict[str, Any]], run: str
) -> dict[str, Any]:
    """Return the content of a checkpoint, tensors and plain values.

    Args:
        parts: The model and its optimizers.
        progress: How far the run is.
        rng: The state of the random numbers of every process.
        run: The identity of the run.
    """
    return {
        "format": FORMAT,
        "run": run,
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


def restore(state: dict[str, Any], parts: Parts, world: World, seed: int) -> None:
    """Restore parts and random numbers from a checkpoint.

    Args:
        state: From :func:`capture`.
        parts: Built in the same way as the parts that were saved.
        world: The processes.
        seed: For processes that the saved run did not have.

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
    if world.rank < len(state["rng"]):
        set_rng_state(state["rng"][world.rank])
    else:
        seed_all(seed, "training", world.rank, state["iteration"])


# -------------------------------------------------------------------------------- files

#: A checkpoint to resume from, or the model with the best validation metric.
Sort: TypeAlias = Literal["step", "best"]

NAME = re.compile(r"(?:step|best)-(\d{8,})\.pt")


def iteration_of(path: Path) -> int:
    """Return the iteration in a checkpoint's name.

    Example:
        >>> iteration_of(Path("step-00000120.pt"))
        120
    """
    found = NAME.fullmatch(path.name)
    return int(found[1]) if found else -1


def checkpoints(folder: Path, sort: Sort = "step") -> list[Path]:
    """Return the checkpoints of a run folder, oldest first."""
    found = (folder / "checkpoints").glob(f"{sort}-*.pt")
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
    with create(path) as file:
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


def _save(folder: Path, sort: Sort, iteration: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint under another name, flush it to disk and rename it.

    At any moment, also after a power failure, a file called ``*.pt`` is a complete checkpoint with
    its checksum.
    """
    path = folder / "checkpoints" / f"{sort}-{iteration:08d}.pt"
    beside = path.with_name(path.name + ".tmp")
    try:
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            sha = _write_state(beside, state)
            # The checksum comes first: a checkpoint never lacks one.
            replace_text(checksum_of(path), f"{sha}  {path.name}\n")
            beside.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return path


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
        checksum_of(path).unlink()


def save_checkpoint(folder: Path, iteration: int, state: dict[str, Any], keep: int) -> Path:
    """Write a checkpoint and remove old ones.

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
    path = _save(folder, "step", iteration, state)
    for old in checkpoints(folder)[:-keep]:
        _remove(old)
    return path


def save_best(folder: Path, iteration: int, model: nn.Module, metrics: Metrics, run: str) -> None:
    """Write the model with the best validation metric, in place of the one before."""
    state = {"format": FORMAT, "run": run, "iteration": iteration, "metrics": metrics}
    path = _save(folder, "best", iteration, {**state, "model": model.state_dict()})
    for other in checkpoints(folder, "best"):
        if other != path:
            _remove(other)


# What every checkpoint contains. Those of earlier versions have no format and no identity.
ENTRIES: dict[str, type] = {
    "iteration": int, "progress": dict, "model": dict, "kinds": list, "optimizers": list,
    "schedulers": list, "rng": list,
}  # fmt: skip
BEST_ENTRIES: dict[str, type] = {"iteration": int, "model": dict, "metrics": dict}


def _read(path: Path, run: str | None = None) -> dict[str, Any]:
    """Read a checkpoint and check that it is whole, and one of this run if that is known."""
    expected = checksum_of(path).read_text("utf-8").split()[0]
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    if sha.hexdigest() != expected:
        raise ValueError("its checksum differs from the one that was written")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise ValueError("it is not a checkpoint")
    if state.get("format", FORMAT) != FORMAT:
        raise ValueError(f"its format is {state['format']}, and this version reads {FORMAT}")
    if run is not None and state.get("run", run) != run:
        raise ValueError("it belongs to another run")
    best = path.name.startswith("best")
    for name, kind in (BEST_ENTRIES if best else ENTRIES).items():
        if not isinstance(state.get(name), kind):
            raise ValueError(f"its entry {name!r} is missing or not a {kind.__name__}")
    unknown = set(state.get("progress", ())) - {entry.name for entry in fields(Progress)}
    if unknown or state["iteration"] != iteration_of(path):
        raise ValueError("its progress is not that of a run")
    return state


def latest_usable(
    folder: Path,
    run: str | None = None,
    *,
    sort: Sort = "step",
    use: Callable[[dict[str, Any]], None] = lambda state: None,
    world: World | None = None,
) -> tuple[dict[str, Any] | None, list[str]]:
    """Read the latest checkpoint that can be used.

    Args:
        folder: The run folder; the first process reads it.
        run: The identity of the run, None if it is not known.
        sort: Which checkpoints.
        use: Does something with the checkpoint. If it raises, the one before is tried.
        world: The processes.

    Returns:
        The checkpoint, None if there is none; and one sentence per checkpoint that is no use.

    Raises:
        RunFolderError: There are checkpoints, and none can be used.
    """
    world = world or World()
    complaints: list[str] = []
    misfit: RunFolderError | None = None
    for path in reversed(world.from_first(lambda: checkpoints(folder, sort))):
        try:
            state = world.from_first(lambda path=path: _read(path, run))  # type: ignore[misc]
            use(state)
            return state, complaints
        # A file that cannot be used for any reason is damaged.
        except Exception as error:  # noqa: BLE001
            misfit = misfit or (error if isinstance(error, RunFolderError) else None)
            complaints.append(f"{path} is damaged ({error}); using the checkpoint before it.")
    if misfit is not None:
        raise misfit
    if complaints:
        raise RunFolderError(
            f"none of the {len(complaints)} checkpoints in {folder} can be read. Start over in "
            "another folder, or remove the folder `checkpoints` to start over in this one."
        )
    return None, []


def load_checkpoint(folder: str | Path, *, best: bool = False) -> dict[str, Any] | None:
    """Read a checkpoint of a run folder; a damaged one is skipped with a warning.

    Args:
        folder: The run folder.
        best: The model with the best validation metric instead of the latest checkpoint.

    Returns:
        The checkpoint, on the CPU: ``"model"`` is the model's state, ``"iteration"`` the number of
        updates; of the best model also ``"metrics"``. None if there is no checkpoint.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_best(folder, 10, torch.nn.Linear(1, 1), {"loss": 0.5}, run="")
        >>> load_checkpoint(folder, best=True)["metrics"]
        {'loss': 0.5}
    """
    state, complaints = latest_usable(Path(folder), sort="best" if best else "step")
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
