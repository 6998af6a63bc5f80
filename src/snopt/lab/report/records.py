"""The curves in a ``metrics.jsonl``; damaged lines are reported and left out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from snopt.lab.train.record import parse_lines

# Fields of a step that place it, and are not measured.
PLACES = {"kind", "iteration", "epoch", "seconds", "time"}


@dataclass(frozen=True)
class Record:
    """What was measured at one iteration.

    Attributes:
        iteration: Updates done by then.
        seconds: Training seconds by then, evaluation not counted.
        values: The measured numbers by name; NaN and infinity stay as they are.
        skipped: Why the update was skipped; empty if it was not.
    """

    iteration: int
    seconds: float
    values: dict[str, float]
    skipped: str = ""


@dataclass
class Records:
    """The content of a ``metrics.jsonl``, without what resumed runs wrote twice.

    Attributes:
        steps: One record per recorded update.
        evals: Records of evaluations by split.
        end: The end record, or None when the run has not ended.
        problems: One sentence for each kind of damage.
    """

    steps: list[Record] = field(default_factory=list)
    evals: dict[str, list[Record]] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)

    def rewind(self, iteration: int) -> None:
        """Remove everything after ``iteration``: a resumed run has repeated it."""
        self.end = None
        for records in (self.steps, *self.evals.values()):
            while records and records[-1].iteration > iteration:
                records.pop()

    def add(self, line: dict[str, Any]) -> None:
        """Add one line.

        Raises:
            ValueError: The line lacks what its kind needs; nothing was added.
        """
        kind = line.get("kind")
        if kind == "start":
            resumed = number(line.get("resumed_from"))
            self.rewind(-1 if resumed is None or not math.isfinite(resumed) else int(resumed))
        elif kind == "step":
            skipped = str(line.get("skipped") or "")
            record = Record(*_place(line), numbers(line, leave_out=PLACES), skipped)
            # Also without a start record, which may be the line that was lost.
            if self.steps and record.iteration <= self.steps[-1].iteration:
                self.rewind(record.iteration - 1)
            self.steps.append(record)
        elif kind == "eval":
            self._add_eval(line)
        elif kind == "end":
            self.end = line
        else:
            raise ValueError("of unknown kind")

    def _add_eval(self, line: dict[str, Any]) -> None:
        metrics = line.get("metrics")
        if not isinstance(metrics, dict):
            raise ValueError("without metrics")
        record = Record(*_place(line), numbers(metrics))
        earlier = self.evals.setdefault(str(line.get("split", "valid")), [])
        while earlier and earlier[-1].iteration >= record.iteration:
            earlier.pop()
        earlier.append(record)


def number(value: object) -> float | None:
    """The value as a float if it is a number, and None if it is anything else.

    Returns:
        A float, maybe NaN or infinite; None for strings, lists, booleans and null.

    Example:
        >>> number(3), number("3"), number(True), number(10**400)
        (3.0, None, None, inf)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def numbers(values: dict[str, Any], leave_out: Iterable[str] = ()) -> dict[str, float]:
    """The numbers among ``values``; a list gives one entry per element.

    Args:
        values: Names and what a JSON file held under them.
        leave_out: Names to skip.

    Example:
        >>> numbers({"loss": 2, "note": "x", "horizon": [1.0], "lr": [0.1, 0.2]})
        {'loss': 2.0, 'horizon': 1.0, 'lr 1': 0.1, 'lr 2': 0.2}
    """
    found: dict[str, float] = {}
    for name, value in values.items():
        if name in leave_out:
            continue
        parts = value if isinstance(value, list) else [value]
        for k, part in enumerate(parts, start=1):
            as_float = number(part)
            if as_float is not None:
                found[name if len(parts) == 1 else f"{name} {k}"] = as_float
    return found


def _place(line: dict[str, Any]) -> tuple[int, float]:
    """Iteration and seconds of a line, which every curve needs."""
    iteration, seconds = number(line.get("iteration")), number(line.get("seconds"))
    if iteration is None or seconds is None or not math.isfinite(iteration + seconds):
        raise ValueError("without an iteration or its seconds")
    return int(iteration), seconds


def parse_records(text: str) -> Records:
    r"""Read the text of a ``metrics.jsonl``.

    Args:
        text: The whole file; a last line without its newline is one that was being written.

    Returns:
        What could be read, with a note on everything that could not.

    Example:
        >>> text = '{"kind":"step","iteration":1,"seconds":0.5,"loss":2.0}\n{"kind":"ste'
        >>> records = parse_records(text)
        >>> len(records.steps), records.problems
        (1, ['line 2 is torn: the run was stopped while writing it'])
    """
    records = Records()
    faults: dict[str, list[int]] = {}
    last = text.count("\n") + 1
    for number_of_line, entry in parse_lines(text):
        try:
            if entry is None:
                torn = number_of_line == last
                raise ValueError(
                    "torn: the run was stopped while writing it" if torn else "not a JSON object"
                )
            records.add(entry)
        except ValueError as fault:
            faults.setdefault(str(fault), []).append(number_of_line)
    records.problems = [_sentence(fault, where) for fault, where in faults.items()]
    return records


def _sentence(fault: str, where: list[int]) -> str:
    if len(where) == 1:
        return f"line {where[0]} is {fault}"
    return f"{len(where)} lines are {fault} (the first is line {where[0]})"
