"""The records of a run: ``metrics.jsonl``, one JSON object per line, and ``log.txt``."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

from snopt.lab.train.folder import (
    RunFolderError,
    as_json,
    create,
    now,
    open_to_append,
    replace_text,
    writing,
)
from snopt.lab.train.task import Listener, Progress

__all__ = ["Record", "parse_line", "parse_lines", "read_records", "rewind"]

#: Bytes reserved on the disk, so that a run that fills it can still record why it failed.
RESERVE = 16 * 1024


def parse_lines(text: str) -> Iterator[tuple[int, dict[str, Any] | None]]:
    r"""Parse JSON objects, one per line.

    Yields:
        The number of each line that is not blank, and its object; None if it holds none.

    Example:
        >>> list(parse_lines('{"kind": "start"}\n\n{"kind": "st'))
        [(1, {'kind': 'start'}), (3, None)]
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, parse_line(line)


def parse_line(line: str) -> dict[str, Any] | None:
    """Parse one JSON object; None if the line holds none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Read the records of a run, also of one that is running or was killed.

    Args:
        folder: The run folder.

    Returns:
        The records in order, damaged lines left out; none if there is no ``metrics.jsonl``.
    """
    path = Path(folder) / "metrics.jsonl"
    try:
        text = path.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror or error}.") from error
    return [record for _, record in parse_lines(text) if record and _is_record(record)]


def _is_record(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("kind"), str) and isinstance(value.get("iteration", 0), int)


def _outlives(record: Mapping[str, Any], progress: Progress | None) -> bool:
    """Tell whether a run resumed there will not write this record again."""
    if record["kind"] in ("start", "end"):
        return bool(record["kind"] == "start")
    if progress is None:
        return False
    if record["kind"] == "eval":
        # The final evaluations come after the last checkpoint, and are repeated.
        seen = progress.iteration - 1 if record.get("split") == "test" else progress.evaluated
        return seen is not None and record.get("iteration", 0) <= seen
    return bool(record.get("iteration", 0) <= progress.iteration)


def rewind(folder: Path, progress: Progress | None) -> None:
    """Remove the records that a resumed run will write again.

    Args:
        folder: The run folder.
        progress: Where the run is resumed; None for the beginning.
    """
    path = folder / "metrics.jsonl"
    if not path.exists():
        return
    kept = [record for record in read_records(folder) if _outlives(record, progress)]
    replace_text(path, "".join(_line(record) for record in kept))


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(as_json(record)) + "\n"


class Record:
    """Writes ``metrics.jsonl`` and ``log.txt``, and calls the listeners.

    Every line is passed to the operating system at once, so that readers see it and a killed
    process does not lose it. A line is written completely or not at all.

    Args:
        folder: The run folder; None, in processes other than the first, to write nothing.
        listeners: Called with every record.
        check: Called before every write; raises if the folder is no longer that of the run.

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
        self._metrics: BinaryIO | None = None
        if folder is None:
            return
        self.path, self._log_path = folder / "metrics.jsonl", folder / "log.txt"
        self._reserve = folder / ".reserve"
        with writing(folder), ExitStack() as opened:
            with create(self._reserve) as file:
                file.write(bytes(RESERVE))
            self._metrics = opened.enter_context(open_to_append(self.path))
            self._log = open_to_append(self._log_path)
            opened.pop_all()

    def add(self, kind: str, **fields: Any) -> None:
        """Append a record of kind ``"start"``, ``"step"``, ``"eval"`` or ``"end"``."""
        record = {"kind": kind, **fields}
        if self._metrics is not None:
            self._check()
            _append(self._metrics, self.path, _line(record))
        for listener in self.listeners:
            listener.on_record(record)

    def log(self, message: str) -> None:
        """Append a line to ``log.txt``."""
        if self._metrics is not None:
            self._check()
            _append(self._log, self._log_path, f"{now()}  {message}\n")

    def tell(self, call: Callable[[Listener], None]) -> None:
        """Call a function with every listener."""
        for listener in self.listeners:
            call(listener)

    def sync(self) -> None:
        """Flush the records to disk, so that no checkpoint is ahead of them."""
        if self._metrics is not None:
            with writing(self.path):
                os.fsync(self._metrics.fileno())

    def fail(self, message: str, **fields: Any) -> None:
        """Record that the run failed; the reserved bytes make it possible on a full disk."""
        self._release_reserve()
        with suppress(RunFolderError):
            self.add("end", status="failed", message=message, **fields)
        with suppress(RunFolderError):
            self.log(f"failed: {message}")

    def close(self) -> None:
        """Close the files."""
        if self._metrics is not None:
            for file in (self._metrics, self._log):
                # A failed write was reported when it happened.
                with suppress(OSError):
                    file.close()
            self._release_reserve()
            self._metrics = None

    def _release_reserve(self) -> None:
        if self._metrics is not None:
            with suppress(OSError, RunFolderError):
                self._check()
                self._reserve.unlink()


def _append(file: BinaryIO, path: Path, text: str) -> None:
    """Append a line completely or not at all."""
    with writing(path):
        handle, data = file.fileno(), text.encode()
        end = os.fstat(handle).st_size
        try:
            if os.write(handle, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(handle, end)
            raise
