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

# A folder that holds one of these is a run folder.
MARKS = ("metrics.jsonl", "config.json")


@dataclass
class Run:
    """One run folder.

    Attributes:
        folder: Where it is.
        config: Its ``config.json``; empty when that could not be read.
        environment: Its ``environment.json``, likewise.
        records: Its ``metrics.jsonl``, likewise.
        pictures: What is in ``pictures/``.
        problems: One sentence per missing or damaged file.
        is_run: Whether there is a run in the folder at all.
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
        """The seed, if the config or the folder's name gives it."""
        train = self.config.get("train")
        in_train = train.get("seed") if isinstance(train, dict) else None
        for value in (number(self.config.get("seed")), number(in_train)):
            if value is not None and value.is_integer():
                return int(value)
        in_name = re.search(r"-seed(\d{1,9})$", self.folder.absolute().name)
        return int(in_name.group(1)) if in_name else None

    @property
    def state(self) -> str:
        """How the run ended: the end record's status, or what its absence means."""
        if self.records.end is not None:
            return str(self.records.end.get("status", "ended"))
        if len(self.records.steps) or self.records.evals:
            return "unfinished"
        return "no records" if self.is_run else "no run"

    def told(self, name: str) -> object:
        """A setting of the config, or of the experiment that it describes."""
        experiment = self.config.get("experiment")
        inner = experiment if isinstance(experiment, dict) else {}
        return self.config.get(name, inner.get(name))

    @property
    def command(self) -> str:
        """The command line that started the run; empty when it is not recorded."""
        command = self.environment.get("command", "")
        if isinstance(command, list):
            return shlex.join(str(part) for part in command)
        return str(command)


def _name_of(value: object) -> str:
    """A name given as a string, or as the ``name`` of a mapping."""
    if isinstance(value, dict):
        value = value.get("name")
    return value if isinstance(value, str) else ""


def read_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Run]:
    """Read run folders; damage is noted in ``problems``, and raises nothing.

    Args:
        paths: Run folders, or folders that hold run folders at any depth.

    Returns:
        One run per run folder, each once, in the order of the paths and by name within them.
        A path without any run yields a run whose ``problems`` say so.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "metrics.jsonl").write_text('{"kind": "start"}')
        ...     [run] = read_runs([folder])
        >>> run.problems[0]
        'config.json is missing'
    """
    folders: dict[str, Path] = {}
    runs = []
    for path in map(Path, paths):
        found = list(run_folders(path))
        if not found:
            there = path.is_dir()
            problem = "no run folder in here" if there else "no such folder"
            runs.append(Run(path, problems=[problem], is_run=False))
        folders.update({os.path.realpath(folder): folder for folder in found})
    return [*map(read_run, folders.values()), *runs]


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
        The run, with a problem noted for everything that is missing or damaged.
    """
    run = Run(folder)
    run.config = _read(run, "config.json", _object) or {}
    run.environment = _read(run, "environment.json", _object) or {}
    records = _read(run, "metrics.jsonl", parse_records)
    if records is not None:
        run.records = records
        run.problems += _troubles(run)
    for path in sorted((folder / "pictures").glob("*.json")):
        name = f"pictures/{path.name}"
        picture = make_picture(_read(run, name, _object) or {})
        if picture is not None:
            run.pictures.append(picture)
        elif not any(problem.startswith(name) for problem in run.problems):
            run.problems.append(f"{name} is not a picture that can be drawn")
    return run


def _troubles(run: Run) -> list[str]:
    """What its records say went wrong."""
    records = run.records
    found = [f"metrics.jsonl: {problem}" for problem in records.problems]
    if records.skipped:
        iteration, reason = records.skipped[0]
        where = f"the first at iteration {iteration}: {reason}"
        found.append(f"skipped updates: {len(records.skipped)} ({where})")
    if records.end is None:
        found.append("no end record: the run is still running, or was killed")
    elif run.state not in ("finished", "target", "budget", "plateau"):
        message = records.end.get("message")
        found.append(f"{run.state}: {message}" if message else run.state)
    return found


def _read(run: Run, name: str, parse: Callable[[BinaryIO], T]) -> T | None:
    """Read a file of a run; None, with a problem noted, if that is not possible."""
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
