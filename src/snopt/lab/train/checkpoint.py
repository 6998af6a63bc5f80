"""Checkpoints of a run: atomic writes, verification when reading, removal of old files."""

from __future__ import annotations

import hashlib
import io
import shutil
import uuid
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeAlias

import torch

from snopt.lab.train.folder import (
    FORMAT,
    FolderLock,
    RunFolderError,
    environment,
    read_config,
    replace_bytes,
    replace_text,
    write_json,
    writing,
)
from snopt.lab.train.parallel import ALONE, World
from snopt.lab.train.record import read_records, rewind
from snopt.lab.train.seeding import seed_all, set_rng_state
from snopt.lab.train.task import Parts, Progress

# -------------------------------------------------------------------------------- state


def capture(
    parts: Parts, progress: Progress, rng: list[dict[str, Any]], run: str
) -> dict[str, Any]:
    """Return the content of a checkpoint; ``rng`` is the random state of every process."""
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
    """Restore parts and random state; ``seed`` is for processes that the saved run did not have.

    Raises:
        RunFolderError: the checkpoint does not match the parts.
    """
    if state["kinds"] != _kinds(parts):
        raise RunFolderError(
            f"the checkpoint was made with {' and '.join(state['kinds'])}, not with "
            f"{' and '.join(_kinds(parts))}; resume with the same parts as the original run."
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
            "same parts as the original run."
        ) from error
    if world.rank < len(state["rng"]):
        set_rng_state(state["rng"][world.rank])
    else:
        seed_all(seed, "training", world.rank, state["iteration"])


# -------------------------------------------------------------------------------- files

#: A checkpoint to resume from, or the model with the best validation metric.
Sort: TypeAlias = Literal["step", "best"]


def iteration_of(path: Path) -> int:
    """Return the iteration in a checkpoint's name: 120 for ``step-00000120.pt``."""
    return int(path.stem.partition("-")[2])


def checkpoints(folder: Path, sort: Sort = "step") -> list[Path]:
    """Return the checkpoints of a run folder, oldest first."""
    found = (folder / "checkpoints").glob(f"{sort}-*.pt")
    return sorted((p for p in found if p.stem.partition("-")[2].isdecimal()), key=iteration_of)


def checksum_of(path: Path) -> Path:
    """Return the path of a checkpoint's checksum."""
    return path.with_name(path.name + ".sha256")


def save_checkpoint(
    folder: Path, iteration: int, state: dict[str, Any], keep: int, sort: Sort = "step"
) -> Path:
    """Write a checkpoint and remove old ones of its sort.

    At any time, even after a power failure, every ``*.pt`` file is a complete checkpoint with its
    checksum.

    Args:
        folder: the run folder.
        iteration: updates made so far; part of the file's name.
        state: tensors and plain values.
        keep: number of checkpoints to keep, including this one.
        sort: kind of checkpoint.

    Raises:
        RunFolderError: the checkpoint cannot be written; older ones are unchanged.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for i in range(4):
        ...     path = save_checkpoint(folder, i, {"weight": torch.ones(2)}, keep=2)
        >>> path.name, [p.name for p in checkpoints(folder)]
        ('step-00000003.pt', ['step-00000002.pt', 'step-00000003.pt'])
    """
    path = folder / "checkpoints" / f"{sort}-{iteration:08d}.pt"
    data = io.BytesIO()
    torch.save(state, data)
    checksum = f"{hashlib.sha256(data.getbuffer()).hexdigest()}  {path.name}\n"
    # The checksum is renamed first, so every checkpoint has one.
    replace_bytes(path, data.getbuffer(), lambda: replace_text(checksum_of(path), checksum))
    others = [other for other in checkpoints(folder, sort) if other != path]
    for old in others[: max(0, len(others) - keep + 1)]:
        with suppress(OSError):
            old.unlink()
            checksum_of(old).unlink()
    return path


# Required entries. Checkpoints of earlier versions have no format and no identity.
ENTRIES: dict[str, type] = {
    "iteration": int, "progress": dict, "model": dict, "kinds": list, "optimizers": list,
    "schedulers": list, "rng": list,
}  # fmt: skip
BEST_ENTRIES: dict[str, type] = {"iteration": int, "model": dict, "metrics": dict}


def _read(path: Path, run: str | None = None) -> dict[str, Any]:
    """Read a checkpoint; check that it is complete and, if known, that it belongs to the run."""
    expected = checksum_of(path).read_text("utf-8").split()[0]
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != expected:
        raise ValueError("its checksum does not match")
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
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
    progress = {"iteration": state["iteration"]} if best else state["progress"]
    if not state["iteration"] == iteration_of(path) == progress.get("iteration"):
        raise ValueError("its iteration does not match its file name")
    if not _is_progress(progress):
        raise ValueError("its progress entry is invalid")
    return state


def _is_progress(saved: Mapping[str, Any]) -> bool:
    """Return whether saved progress has the types of :class:`Progress`; fields may be missing."""
    kinds: dict[type, tuple[type, ...]] = {float: (int, float), NoneType: (int, float, NoneType)}
    usual = {name: type(value) for name, value in vars(Progress()).items()}
    return all(
        name in usual and isinstance(value, kinds.get(usual[name], usual[name]))
        for name, value in saved.items()
    )


def latest_usable(
    folder: Path,
    run: str | None = None,
    *,
    sort: Sort = "step",
    use: Callable[[dict[str, Any]], None] = lambda state: None,
    world: World = ALONE,
) -> tuple[dict[str, Any] | None, list[str]]:
    """Read the latest checkpoint that can be used.

    Args:
        folder: the run folder; the first process reads it.
        run: identity of the run, None if it is not known.
        sort: kind of checkpoint.
        use: called with the checkpoint; if it raises, the previous one is tried.
        world: the processes.

    Returns:
        the checkpoint, or None if there is none; and one message per skipped checkpoint.

    Raises:
        RunFolderError: there are checkpoints, but none can be used.
    """
    complaints: list[str] = []
    misfit: RunFolderError | None = None
    for path in reversed(world.from_first(lambda: checkpoints(folder, sort))):
        try:
            state = world.from_first(lambda path=path: _read(path, run))  # type: ignore[misc]
            use(state)
            return state, complaints
        # Any failure means that the file is damaged.
        except Exception as error:  # noqa: BLE001
            misfit = misfit or (error if isinstance(error, RunFolderError) else None)
            complaints.append(f"{path} is damaged ({error}); using the previous checkpoint.")
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
        folder: the run folder.
        best: read the model with the best validation metric instead of the latest checkpoint.

    Returns:
        the checkpoint, on the CPU: ``"model"`` is the model's state, ``"iteration"`` the number of
        updates; of the best model also ``"metrics"``. None if there is no checkpoint.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> state = {"iteration": 10, "model": {}, "metrics": {"loss": 0.5}}
        >>> path = save_checkpoint(folder, 10, state, keep=1, sort="best")
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
    """Rename the damaged checkpoints after an iteration; they no longer count as kept."""
    for path in checkpoints(folder):
        if iteration_of(path) > after:
            with writing(path):
                path.replace(path.with_name(path.name + ".damaged"))
                checksum_of(path).unlink(missing_ok=True)


# --------------------------------------------------------------- starting and resuming

#: Settings that determine the order of the data; a resumed run must not change them.
FIXED = ("seed", "batch_size")


def open_run(
    lock: FolderLock,
    parts: Parts,
    settings: dict[str, Any],
    world: World,
    *,
    resume: bool,
    overwrite: bool,
) -> tuple[Progress | None, list[str]]:
    """Lock the run folder and prepare it for a new or a resumed run.

    Args:
        lock: the lock of the folder.
        parts: restored from the latest usable checkpoint.
        settings: the content of ``config.json``; receives the identity of the run.
        world: the processes.
        resume: resume the run in the folder.
        overwrite: delete the run in the folder.

    Returns:
        the progress of the run, or None for a new run; and one message per skipped checkpoint.
    """
    known = world.from_first(lambda: _claim(lock, settings, resume, overwrite))
    state, complaints = None, list[str]()
    if resume:
        seed = settings["train"]["seed"]
        state, complaints = latest_usable(
            lock.folder, known, use=lambda state: restore(state, parts, world, seed), world=world
        )
    reached = None if state is None else Progress(**state["progress"])
    settings |= {"run": known or (state or {}).get("run") or uuid.uuid4().hex, "format": FORMAT}
    world.from_first(lambda: _prepare(lock, settings, world, reached, resume))
    return reached, complaints


def _claim(
    lock: FolderLock, settings: Mapping[str, Any], resume: bool, overwrite: bool
) -> str | None:
    """Lock a folder and check that the run may use it; nothing else in the folder changes yet.

    Return the identity of the run to resume; None for a new run, or if it is not known.
    """
    folder = lock.folder
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock.acquire()
    before = dict[str, Any]()
    with suppress(RunFolderError):
        before = read_config(folder)
    if not isinstance(before.get("train"), dict):
        before = {}  # damaged, or not a run folder
    if resume:
        _check_same(folder, before, settings["train"])
        identity = before.get("run")
        return identity if isinstance(identity, str) else None
    foreign = not before and (folder / "config.json").exists()
    if not overwrite and (foreign or _holds_run(folder)):
        raise RunFolderError(
            f"{folder} already holds a run; resume it (resume=True, --resume), delete it "
            "(overwrite=True, --overwrite), or choose another folder."
        )
    return None


def _holds_run(folder: Path) -> bool:
    """Return whether a folder holds more than a run that failed before its first checkpoint."""
    ends = [record for record in read_records(folder) if record["kind"] == "end"]
    return bool(checkpoints(folder) or (ends and ends[-1].get("status") != "failed"))


def _check_same(folder: Path, before: Mapping[str, Any], train: Mapping[str, Any]) -> None:
    if before.get("format", FORMAT) != FORMAT:
        raise RunFolderError(
            f"{folder} has format {before['format']}, but this version of snopt reads format "
            f"{FORMAT}; resume the run with the version that started it."
        )
    for name in FIXED:
        value = before.get("train", {}).get(name, train[name])
        if value != train[name]:
            raise RunFolderError(
                f"{name} is {train[name]}, but the run in {folder} was started with {value}; "
                "resume it with that, or choose another folder."
            )


def _prepare(
    lock: FolderLock,
    settings: Mapping[str, Any],
    world: World,
    progress: Progress | None,
    resume: bool,
) -> None:
    """Remove the earlier run, or records that will be repeated; write the JSON files."""
    folder = lock.folder
    lock.sign(settings["run"])
    if resume:
        set_aside(folder, after=-1 if progress is None else progress.iteration)
        rewind(folder, progress)
    else:
        with writing(folder):
            for name in ("checkpoints", "pictures"):
                if (folder / name).exists():
                    shutil.rmtree(folder / name)
            for name in ("metrics.jsonl", "log.txt", "environment.json", "config.json"):
                (folder / name).unlink(missing_ok=True)
    write_json(folder / "config.json", settings)
    if not (folder / "environment.json").exists():
        write_json(folder / "environment.json", environment(world.device, world.size))
