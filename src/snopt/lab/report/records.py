"""The curves in a ``metrics.jsonl``; damaged lines are reported and skipped."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from snopt.lab.train.record import parse_line

Floats = NDArray[np.float64]

# The name of the records of training steps.
STEPS = "training"
# Fields of a step that are not measured quantities.
PLACES = {"kind", "iteration", "epoch", "seconds", "time"}
# More than twice this number of steps are thinned, because no curve shows so many.
KEPT_STEPS = 5_000
# Larger numbers come from diverged runs, and their sums and differences overflow.
HUGE = 1e300


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most so many places among ``count``, evenly spaced, the ends included.

    Example:
        >>> evenly(10, 4)
        array([0, 3, 6, 9])
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))


class Series:
    """Numbers recorded during a run, in columns; NaN where a record lacks one.

    Args:
        keep: thin the records evenly to fewer than twice this number.

    Attributes:
        iteration: updates done by each record.
        seconds: training seconds by then, without evaluation.
        values: columns by name.
    """

    def __init__(self, keep: int | None = None) -> None:
        self.iteration, self.seconds = array("q"), array("d")
        self.values: dict[str, array[float]] = {}
        self._keep, self._stride, self._seen = keep, 1, 0

    def __len__(self) -> int:
        return len(self.iteration)

    def _columns(self) -> list[array[Any]]:
        return [self.iteration, self.seconds, *self.values.values()]

    def skips(self) -> bool:
        """Count one more record, and return whether thinning skips it."""
        self._seen += 1
        return (self._seen - 1) % self._stride != 0

    def add(self, iteration: int, seconds: float, values: dict[str, float]) -> None:
        """Append a record."""
        for name in values:
            if name not in self.values:
                self.values[name] = array("d", [math.nan]) * len(self)
        self.iteration.append(iteration)
        self.seconds.append(seconds)
        for name, column in self.values.items():
            column.append(values.get(name, math.nan))
        if self._keep is not None and len(self) >= 2 * self._keep:
            self._stride *= 2
            for column in self._columns():
                column[:] = column[::2]

    def rewind(self, iteration: int) -> None:
        """Remove the records after an iteration."""
        end = bisect_right(self.iteration, iteration)
        for column in self._columns():
            del column[end:]

    def table(self, name: str) -> Floats:
        """Return rows (iteration, seconds, value) of the values that are finite."""
        if name not in self.values:
            return np.empty((0, 3))
        rows = np.array([self.iteration, self.seconds, self.values[name]], dtype=np.float64).T
        return rows[np.isfinite(rows[:, 2])]


@dataclass
class Records:
    """The content of a ``metrics.jsonl``, without records that resumed runs repeated.

    Attributes:
        steps: one record per recorded update, thinned in long runs.
        evals: evaluations by split, all of them.
        skipped: iterations whose update was skipped, with the reason.
        end: the end record, or None if the run has not ended.
        problems: one sentence for each kind of damage.
    """

    steps: Series = field(default_factory=lambda: Series(keep=KEPT_STEPS))
    evals: dict[str, Series] = field(default_factory=dict)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def final(self) -> dict[str, dict[str, float]]:
        """The metrics of the end record by split; empty if there are none."""
        final = (self.end or {}).get("final")
        splits = final.items() if isinstance(final, dict) else ()
        return {split: numbers(found) for split, found in splits if isinstance(found, dict)}

    def split(self, name: str) -> Series:
        """Return the records of one split, or of the training steps."""
        return self.steps if name == STEPS else self.evals.get(name, Series())

    def rewind(self, iteration: int) -> None:
        """Remove everything after ``iteration``, which a resumed run has repeated."""
        self.end = None
        for series in (self.steps, *self.evals.values()):
            series.rewind(iteration)
        self.skipped = [skip for skip in self.skipped if skip[0] <= iteration]

    def add(self, line: dict[str, Any]) -> None:
        """Add one line.

        Raises:
            ValueError: the line lacks a required field; nothing was added.
        """
        kind = line.get("kind")
        if kind == "start":
            resumed = number(line.get("resumed_from"))
            self.rewind(-1 if resumed is None or not math.isfinite(resumed) else int(resumed))
        elif kind == "step":
            iteration, seconds = _place(line)
            # Also without a start record, which may be the damaged line.
            if self.steps.iteration and iteration <= self.steps.iteration[-1]:
                self.rewind(iteration - 1)
            self.steps.add(iteration, seconds, numbers(line, leave_out=PLACES))
            if line.get("skipped"):
                self.skipped.append((iteration, str(line["skipped"])))
        elif kind == "eval":
            metrics = line.get("metrics")
            if not isinstance(metrics, dict):
                raise ValueError("without metrics")
            iteration, seconds = _place(line)
            series = self.evals.setdefault(str(line.get("split", "valid")), Series())
            series.rewind(iteration - 1)
            series.add(iteration, seconds, numbers(metrics))
        elif kind == "end":
            self.end = line
        else:
            raise ValueError("of unknown kind")


def number(value: object) -> float | None:
    """Return the value as a float if it is a number, and None if it is anything else.

    Returns:
        a float, which may be NaN, and is infinite beyond ``HUGE``; None for strings, lists,
        booleans and null.

    Example:
        >>> number(3), number("3"), number(True), number(10**400), number(-1e308)
        (3.0, None, None, inf, -inf)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if abs(value) > HUGE:
        return math.inf if value > 0 else -math.inf
    return float(value)


def numbers(values: dict[str, Any], leave_out: Iterable[str] = ()) -> dict[str, float]:
    """Return the numbers among ``values``; a list makes one entry per element.

    Args:
        values: content of a JSON object.
        leave_out: names to skip.

    Example:
        >>> numbers({"loss": 2, "note": "x", "horizon": [1.0], "lr": [0.1, 0.2]})
        {'loss': 2.0, 'horizon': 1.0, 'lr 1': 0.1, 'lr 2': 0.2}
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        parts = value if isinstance(value, list) else [value]
        for k, part in enumerate([] if name in leave_out else parts, start=1):
            if (as_float := number(part)) is not None:
                found[name if len(parts) == 1 else f"{name} {k}"] = as_float
    return found


def _place(line: dict[str, Any]) -> tuple[int, float]:
    """Return iteration and seconds of a line, or raise ValueError."""
    iteration, seconds = number(line.get("iteration")), number(line.get("seconds"))
    if iteration is None or seconds is None or not math.isfinite(iteration + seconds):
        raise ValueError("without an iteration or its seconds")
    if not -1 <= iteration < 2**63:
        raise ValueError("invalid: its iteration is out of range")
    return int(iteration), seconds


def parse_records(lines: Iterable[bytes]) -> Records:
    r"""Read the lines of a ``metrics.jsonl``, one at a time.

    Args:
        lines: the file; a last line without newline was being written.

    Returns:
        the records, with a problem for each kind of damage. Lines of steps that thinning skips are
        not parsed, so damage in them is not detected.

    Example:
        >>> step = b'{"kind":"step","iteration":1,"seconds":0.5,"loss":2.0}\n'
        >>> records = parse_records([step, b'{"kind":"ste'])
        >>> len(records.steps), records.problems
        (1, ['line 2 is incomplete: the run was stopped while writing it'])
    """
    records = Records()
    faults: dict[str, list[int]] = {}

    def read(place: int, line: bytes) -> None:
        try:
            entry = parse_line(line.decode("utf-8", errors="replace"))
            if entry is None and not line.endswith(b"\n"):
                raise ValueError("incomplete: the run was stopped while writing it")
            if entry is None:
                raise ValueError("not a JSON object")
            records.add(entry)
        except ValueError as fault:
            faults.setdefault(str(fault), []).append(place)

    left_out: tuple[int, bytes] | None = None
    for place, line in enumerate(lines, start=1):
        whole_step = line.startswith(b'{"kind": "step"') and line.endswith(b"}\n")
        if whole_step and b'"skipped"' not in line and records.steps.skips():
            left_out = place, line
        elif not line.isspace():
            left_out = None
            read(place, line)
    if left_out is not None:  # the last step has the length of the run
        read(*left_out)
    records.problems = [
        f"line {where[0]} is {fault}"
        if len(where) == 1
        else f"{len(where)} lines are {fault} (the first is line {where[0]})"
        for fault, where in faults.items()
    ]
    return records
