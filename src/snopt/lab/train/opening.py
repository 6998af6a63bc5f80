"""Opening a run folder: for a new run, or where another left off."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from snopt.lab.train.checkpoint import latest_whole, set_aside
from snopt.lab.train.folder import RunFolderError, write_json, writing
from snopt.lab.train.lock import FolderLock
from snopt.lab.train.record import rewind
from snopt.lab.train.state import Progress
from snopt.lab.train.task import Parts, Task, TrainConfig

__all__ = ["look", "prepare", "settings_of"]

#: What decides the order of the data, and so must be the same in a resumed run.
FIXED = ("seed", "batch_size")


def settings_of(
    task: Task, parts: Parts, config: TrainConfig, describe: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what ``config.json`` says.

    Args:
        task: Its name is told.
        parts: The kinds of optimizers are told.
        config: Told in full.
        describe: Anything else to tell; it comes first in a conflict.
    """
    return {
        "task": task.name,
        "optimizer": "+".join(type(optimizer).__name__ for optimizer in parts.optimizers),
        "seed": config.seed,
        **describe,
        "train": asdict(config),
    }


def look(
    lock: FolderLock, settings: Mapping[str, Any], resume: bool
) -> tuple[dict[str, Any] | None, list[str]]:
    """Take a folder for a run and see what is in it; nothing in it changes yet.

    Args:
        lock: Of the folder; it is acquired, and stays so.
        settings: From :func:`settings_of`.
        resume: Go on with what is in the folder, if anything is.

    Returns:
        The checkpoint to go on from, None to begin at the beginning; and sentences about
        checkpoints that are damaged.

    Raises:
        RunFolderError: If the folder cannot be written to, is in use, or holds another run.
    """
    with writing(lock.folder):
        lock.folder.mkdir(parents=True, exist_ok=True)
    lock.acquire()
    if resume:
        _refuse_other_data_order(lock.folder, settings)
        return latest_whole(lock.folder)
    _refuse_another_run(lock.folder)
    return None, []


def prepare(
    folder: Path,
    settings: Mapping[str, Any],
    environment: Mapping[str, Any],
    progress: Progress | None,
) -> None:
    """Bring a folder to the state that the run goes on in.

    Args:
        folder: The run folder.
        settings: From :func:`settings_of`.
        environment: What the run is computed with.
        progress: Where the run is resumed; None if it begins at the beginning.
    """
    set_aside(folder, after=-1 if progress is None else progress.iteration)
    rewind(folder, progress)
    write_json(folder / "config.json", settings)
    if not (folder / "environment.json").exists():
        write_json(folder / "environment.json", environment)


def _refuse_another_run(folder: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "checkpoints"):
        if (folder / name).exists():
            raise RunFolderError(
                f"{folder} holds a run already ({name} is there); resume it, or choose another "
                "folder."
            )


def _refuse_other_data_order(folder: Path, settings: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    if not path.exists():
        return
    try:
        before = json.loads(path.read_text("utf-8"))["train"]
    except (ValueError, KeyError, TypeError):
        return  # Somebody else's file, or a damaged one: there is nothing to compare with.
    for name in FIXED:
        if name in before and before[name] != settings["train"][name]:
            raise RunFolderError(
                f"{name} is {settings['train'][name]}, but the run in {folder} was started with "
                f"{before[name]}; resume it with that, or choose another folder."
            )
