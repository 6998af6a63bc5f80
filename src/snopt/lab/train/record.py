"""The records of a run: ``metrics.jsonl``, one JSON object per line, and ``log.txt``."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

from snopt.lab.train.folder import (
    NO_FOLLOW,
    RunFolderError,
    as_json,
    create,
    now,
    replace_text,
    writing,
)
from snopt.lab.train.task import Listener, Progress

#: Bytes reserved on the disk, to record why a run failed if the disk is full.
RESERVE = 16 * 1024


def parse_line(line: str) -> dict[str, Any] | None:
    """Parse one JSON object; None if the line is not one.

    Example:
        >>> parse_line('{"kind": "start"}'), parse_line('{"kind": "st')
        ({'kind': 'start'}, None)
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Read the records of a run, even if it is running or was killed.

    Args:
        folder: the run folder.

    Returns:
        the records in order, without damaged lines; none if there is no ``metrics.jsonl``.
    """
    path = Path(folder) / "metrics.jsonl"
    try:
        lines = path.read_text("utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror or error}.") from error
    return [record for line in lines if (record := parse_line(line)) and _is_record(record)]


def _is_record(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("kind"), str) and isinstance(value.get("iteration", 0), int)


def _outlives(record: Mapping[str, Any], progress: Progress | None) -> bool:
    """Return whether a run resumed at ``progress`` keeps this record."""
    if record["kind"] in ("start", "end"):
        return bool(record["kind"] == "start")
    if progress is None:
        return False
    last: int | None = progress.iteration
    if record["kind"] == "eval":
        # The final evaluations come after the last checkpoint, and are repeated.
        last = progress.iteration - 1 if record.get("split") == "test" else progress.evaluated
    return last is not None and bool(record.get("iteration", 0) <= last)


def rewind(folder: Path, progress: Progress | None) -> None:
    """Remove the records that a resumed run will write again.

    Args:
        folder: the run folder.
        progress: where the run is resumed; None for the beginning.
    """
    path = folder / "metrics.jsonl"
    if path.exists():
        kept = [record for record in read_records(folder) if _outlives(record, progress)]
        replace_text(path, "".join(_line(record) for record in kept))


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(as_json(record)) + "\n"


class Record:
    """Write ``metrics.jsonl`` and ``log.txt``, and call the listeners.

    Every line is flushed immediately: readers see it, and a killed process does not lose it. A line
    is written completely or not at all.

    Args:
        folder: the run folder; None, in processes other than the first, to write nothing.
        listeners: called with every record.
        check: called before every write; raises if the folder no longer belongs to the run.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> record = Record(folder)
        >>> record.add("step", iteration=1, loss=0.5)
        >>> read_records(folder)
        [{'kind': 'step', 'iteration': 1, 'loss': 0.5}]
        >>> record.close()
    """

    def __init__(
        self,
        folder: Path | None,
        listeners: Sequence[Listener] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.listeners = listeners if folder is not None else ()
        self._check = check
        self._files: dict[str, BinaryIO] = {}
        if folder is None:
            return
        self._folder, self._reserve = folder, folder / ".reserve"
        with ExitStack() as opened:
            with writing(self._reserve), create(self._reserve) as file:
                file.write(bytes(RESERVE))
            for name in ("metrics.jsonl", "log.txt"):
                self._files[name] = opened.enter_context(_open_to_append(folder / name))
            opened.pop_all()

    def add(self, kind: str, **fields: Any) -> None:
        """Append a record of kind ``"start"``, ``"step"``, ``"eval"`` or ``"end"``."""
        record = {"kind": kind, **fields}
        self._append("metrics.jsonl", _line(record))
        for listener in self.listeners:
            listener.on_record(record)

    def log(self, message: str) -> None:
        """Append a line to ``log.txt``."""
        self._append("log.txt", f"{now()}  {message}\n")

    def _append(self, name: str, line: str) -> None:
        """Append a line completely or not at all."""
        if not self._files:
            return
        self._check()
        with writing(self._folder / name):
            handle, data = self._files[name].fileno(), line.encode()
            end = os.fstat(handle).st_size
            try:
                if os.write(handle, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(handle, end)
                raise

    def tell(self, call: Callable[[Listener], None]) -> None:
        """Call a function with every listener."""
        for listener in self.listeners:
            call(listener)

    def sync(self) -> None:
        """Flush the records to disk, before a checkpoint is written."""
        with writing(self._folder / "metrics.jsonl"):
            os.fsync(self._files["metrics.jsonl"].fileno())

    def fail(self, message: str, **fields: Any) -> None:
        """Record that the run failed, using the reserved bytes if the disk is full."""
        self._release_reserve()
        with suppress(RunFolderError):
            self.add("end", status="failed", message=message, **fields)
        with suppress(RunFolderError):
            self.log(f"failed: {message}")

    def close(self) -> None:
        """Close the files."""
        self._release_reserve()
        for file in self._files.values():
            # A failed write was reported when it happened.
            with suppress(OSError):
                file.close()
        self._files = {}

    def _release_reserve(self) -> None:
        if self._files:
            with suppress(OSError, RunFolderError):
                self._check()
                self._reserve.unlink()


def _open_to_append(path: Path) -> BinaryIO:
    """Open a file without a buffer and without following a link."""
    with writing(path):
        if path.is_symlink():
            raise RunFolderError(f"{path} is a symbolic link; remove it.")
        return open(path, "ab", buffering=0, opener=lambda p, f: os.open(p, f | NO_FOLLOW, 0o666))
