"""The record of a run: one JSON object a line, and a log for people."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from snopt.lab.train.folder import RunFolderError, as_json, now, replace_text, writing
from snopt.lab.train.state import Progress
from snopt.lab.train.task import Listener

__all__ = ["Record", "read_records", "rewind"]

#: Bytes kept back on the disk, so that a run that fills it can still say so.
RESERVE = 16 * 1024


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Read the records of a run, also of one that is running or was killed.

    Lines that are not whole are left out: a kill can tear the last one.

    Args:
        folder: The run folder.

    Returns:
        The records in order; none if there is no such file.
    """
    path = Path(folder) / "metrics.jsonl"
    found: list[dict[str, Any]] = []
    if not path.exists():
        return found
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and "kind" in record:
                found.append(record)
    return found


def _outlives(record: Mapping[str, Any], progress: Progress | None) -> bool:
    """Tell whether a run resumed there will not write this record again."""
    if record["kind"] in ("start", "end"):
        return bool(record["kind"] == "start")
    if progress is None:
        return False
    if record["kind"] == "eval":
        # The final evaluations come behind the last checkpoint, and so are made again.
        seen = progress.iteration - 1 if record.get("split") == "test" else progress.evaluated
        return seen is not None and record.get("iteration", 0) <= seen
    return bool(record.get("iteration", 0) <= progress.iteration)


def rewind(folder: Path, progress: Progress | None) -> None:
    """Leave in the record what a run had written when it was saved.

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
    return json.dumps(as_json(record), separators=(", ", ": ")) + "\n"


class Record:
    """Writes ``metrics.jsonl`` and ``log.txt``, and tells listeners.

    Every line is handed to the operating system at once: readers see it, and a killed process
    does not take it along. A line that cannot be written leaves no trace, so that the file stays
    readable. Without a folder (in processes other than the first) nothing happens.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> record = Record(folder)
        >>> record.add("step", iteration=1, loss=0.5)
        >>> read_records(folder)
        [{'kind': 'step', 'iteration': 1, 'loss': 0.5}]
        >>> record.close()
    """

    def __init__(self, folder: Path | None, listeners: Sequence[Listener] = ()) -> None:
        """Open the record for appending.

        Args:
            folder: The run folder; None to write nothing.
            listeners: Told of every record.
        """
        self.listeners = listeners if folder is not None else ()
        self._metrics: BinaryIO | None = None
        if folder is None:
            return
        self.path, self._log_path = folder / "metrics.jsonl", folder / "log.txt"
        self._reserve = folder / ".reserve"
        with writing(folder):
            self._reserve.write_bytes(bytes(RESERVE))
            self._metrics = open(self.path, "ab", buffering=0)  # noqa: SIM115
            self._log = open(self._log_path, "ab", buffering=0)  # noqa: SIM115

    def add(self, kind: str, **fields: Any) -> None:
        """Append one record.

        Args:
            kind: ``"start"``, ``"step"``, ``"eval"`` or ``"end"``.
            fields: What it says.
        """
        record = {"kind": kind, **fields}
        if self._metrics is not None:
            _append(self._metrics, self.path, _line(record))
        for listener in self.listeners:
            listener.on_record(record)

    def log(self, message: str) -> None:
        """Append a line for people to ``log.txt``."""
        if self._metrics is not None:
            _append(self._log, self._log_path, f"{now()}  {message}\n")

    def tell(self, call: Callable[[Listener], None]) -> None:
        """Do something with every listener."""
        for listener in self.listeners:
            call(listener)

    def sync(self) -> None:
        """Force the records to the disk, so that no checkpoint is ahead of them."""
        if self._metrics is not None:
            with writing(self.path):
                os.fsync(self._metrics.fileno())

    def fail(self, message: str, **fields: Any) -> None:
        """Say, as the last thing, that the run failed, even on a full disk if possible.

        Args:
            message: Why.
            fields: Where.
        """
        if self._metrics is not None:
            with suppress(OSError):
                self._reserve.unlink()
        with suppress(RunFolderError):
            self.add("end", status="failed", message=message, **fields)
        with suppress(RunFolderError):
            self.log(f"failed: {message}")

    def close(self) -> None:
        """Close the files."""
        if self._metrics is not None:
            for file in (self._metrics, self._log):
                # What could not be written was reported when it was tried.
                with suppress(OSError):
                    file.close()
            with suppress(OSError):
                self._reserve.unlink()
            self._metrics = None


def _append(file: BinaryIO, path: Path, text: str) -> None:
    """Append a line as a whole, or not at all."""
    with writing(path):
        handle, data = file.fileno(), text.encode()
        end = os.fstat(handle).st_size
        try:
            if os.write(handle, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(handle, end)
            raise
