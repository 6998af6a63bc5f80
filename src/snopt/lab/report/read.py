"""Read run folders: running, finished, killed or damaged ones."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from snopt.lab.report.pictures import Picture, make_picture
from snopt.lab.report.records import Records, number, parse_records

T = TypeVar("T")

# Statuses of runs that went as planned.
ENDED_WELL = ("finished", "target", "budget", "plateau")
# A folder that holds one of these is a run folder.
MARKS = ("metrics.jsonl", "config.json")


@dataclass
class Run:
    """One run folder.

    Attributes:
        folder: path of the folder.
        config: its ``config.json``; empty if that could not be read.
        environment: its ``environment.json``; empty if that could not be read.
        records: its ``metrics.jsonl``; empty if that could not be read.
        pictures: the content of ``pictures/``.
        problems: one sentence per missing or damaged file.
        is_run: whether the folder contains a run.
    """

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    records: Records = field(default_factory=Records)
    pictures: list[Picture] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_run: bool = True

    @property
    def task(self) -> str:
        """Name of the task; default the name of the parent folder."""
        return _name_of(self.config.get("task")) or self.folder.absolute().parent.name

    @property
    def optimizer(self) -> str:
        """Label of the optimizer; default from the folder's name."""
        label = _name_of(self.config.get("label")) or _name_of(self.config.get("optimizer"))
        return label or re.sub(r"-seed\d+$", "", self.folder.absolute().name)

    @property
    def seed(self) -> int | None:
        """The seed, if the config or the folder's name has it."""
        for value in (number(self.config.get("seed")), number(self.trained("seed"))):
            if value is not None and value.is_integer():
                return int(value)
        in_name = re.search(r"-seed(\d{1,9})$", self.folder.absolute().name)
        return int(in_name.group(1)) if in_name else None

    @property
    def state(self) -> str:
        """Status of the end record, or else ``"unfinished"`` or ``"no records"``."""
        if self.records.end is not None:
            return str(self.records.end.get("status", "ended"))
        return "unfinished" if len(self.records.steps) or self.records.evals else "no records"

    def trained(self, name: str) -> object:
        """Return a setting of the training loop."""
        return _object_of(self.config.get("train")).get(name)

    @property
    def command(self) -> str:
        """The command line that started the run; empty if it is not recorded."""
        command = self.environment.get("command", "")
        return shlex.join(map(str, command)) if isinstance(command, list) else str(command)


def _object_of(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name_of(value: object) -> str:
    """Return a name: a string, or the ``name`` of a mapping."""
    value = _object_of(value).get("name", value)
    return value if isinstance(value, str) else ""


def read_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Run]:
    """Read run folders; damaged files are listed in ``problems`` and raise no error.

    Args:
        paths: run folders, or folders that hold run folders at any depth.

    Returns:
        one run per run folder, each once, in the order of the paths and by name within them.
        A path without any run gives a run with an entry in ``problems``.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "metrics.jsonl").write_text('{"kind": "start"}')
        ...     [run] = read_runs([folder])
        >>> run.problems[0]
        'config.json is missing'
    """
    folders: dict[str, Path] = {}
    others = []
    for path in map(Path, paths):
        found = {os.path.realpath(folder): folder for folder in run_folders(path)}
        folders |= found
        if not found:
            problem = "contains no run folder" if path.is_dir() else "no such folder"
            others.append(Run(path, problems=[problem], is_run=False))
    return [*map(read_run, folders.values()), *others]


def run_folders(path: Path) -> Iterator[Path]:
    """Find run folders at or below ``path``, but not inside other run folders."""
    for folder, inner, files in os.walk(path):
        inner.sort()
        if any(mark in files for mark in MARKS):
            inner.clear()
            yield Path(folder)


def read_run(folder: Path) -> Run:
    """Read one run folder.

    Returns:
        the run; ``problems`` lists missing and damaged files.
    """
    run = Run(folder)
    run.config = _read(run, "config.json", _object) or {}
    run.environment = _read(run, "environment.json", _object) or {}
    records = _read(run, "metrics.jsonl", parse_records)
    if records is not None:
        run.records = records
        run.problems += _troubles(run)
    paths = sorted((folder / "pictures").glob("*.json"))
    pictures = [_read(run, f"pictures/{path.name}", _picture) for path in paths]
    run.pictures = [picture for picture in pictures if picture is not None]
    return run


def _troubles(run: Run) -> list[str]:
    """Return the problems of the run according to its records."""
    records = run.records
    found = [f"metrics.jsonl: {problem}" for problem in records.problems]
    if records.skipped:
        iteration, reason = records.skipped[0]
        where = f"the first at iteration {iteration}: {reason}"
        found.append(f"skipped updates: {len(records.skipped)} ({where})")
    if records.end is None:
        found.append("no end record: the run is still running, or was killed")
    elif run.state not in ENDED_WELL:
        message = records.end.get("message")
        found.append(f"{run.state}: {message}" if message else run.state)
    return found


def _read(run: Run, name: str, parse: Callable[[BinaryIO], T]) -> T | None:
    """Read a file of a run; return None and add a problem if that is not possible."""
    try:
        with (run.folder / name).open("rb") as file:
            return parse(file)
    except FileNotFoundError:
        run.problems.append(f"{name} is missing")
    except OSError as error:
        run.problems.append(f"{name} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        run.problems.append(f"{name} is damaged: {error}")
    return None


def _object(file: BinaryIO) -> dict[str, Any]:
    content = json.loads(file.read().decode("utf-8", errors="replace"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def _picture(file: BinaryIO) -> Picture:
    picture = make_picture(_object(file))
    if picture is None:
        raise ValueError("not a picture that can be drawn")
    return picture
