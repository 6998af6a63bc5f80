"""The table of the race: one row a task and method, from the records of its runs.

A loss is the mean of the training loss over a tenth of the budget. The rate of a method is the one
with the lowest validation loss at the end, averaged over seeds; all columns but *worst* are of that
rate. The rivals' best is the lowest final loss of all other methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean
from typing import Any, TypeVar

from snopt.lab.table import cell_text, markdown

Record = dict[str, Any]
Key = TypeVar("Key", bound=Hashable)
SMOOTH = 5
"""Points of a curve that a loss is averaged over, a tenth of them all."""


def grouped(records: Iterable[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    """Sort records into groups, in the order in which they first appear."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def smoothed(record: Record) -> list[tuple[float, float, float]]:
    """Updates, seconds and mean loss of the points so far, at every point of a run."""
    curve = record["curve"]
    return [
        (
            point["updates"],
            point["seconds"],
            fmean(_number(p["loss"]) for p in curve[max(0, i + 1 - SMOOTH) : i + 1]),
        )
        for i, point in enumerate(curve)
    ]


def _number(value: float | None) -> float:
    """A loss; JSON has no word for one that is not finite."""
    return math.inf if value is None or not math.isfinite(value) else value


def final_loss(records: Sequence[Record]) -> float:
    """The loss at the end, over seeds; infinite if a run did not get there."""
    return fmean(
        smoothed(r)[-1][2] if r["status"] == "finished" and r["curve"] else math.inf
        for r in records
    )


def judged(records: Sequence[Record]) -> float:
    """The validation loss at the end, over seeds; infinite if a run did not get there."""
    return fmean(_number(r.get("valid", {}).get("loss")) for r in records)


def reached(record: Record, target: float) -> tuple[float, float] | None:
    """Updates and seconds of a run until its loss was as low as a target; None if never."""
    for updates, seconds, loss in smoothed(record):
        if loss <= target:
            return updates, seconds
    return None


def standings(records: Iterable[Record]) -> str:
    """Tabulate everything."""
    header = [
        "task", "method", "rate", "seeds", "final loss", "worst over rates", "valid or test metric",
        "CPU s to rivals' best", "updates to it", "CPU s", "updates", "evaluations an update",
    ]  # fmt: skip
    rows: list[list[str]] = []
    for task, runs in grouped(records, lambda r: r["entry"]["task"]).items():
        methods = grouped(runs, lambda r: r["entry"]["method"])
        rates = {method: grouped(of, _rate) for method, of in methods.items()}
        best = {method: min(of, key=lambda lr: judged(of[lr])) for method, of in rates.items()}
        final = {method: final_loss(rates[method][lr]) for method, lr in best.items()}
        for method, lr in best.items():
            rivals = [loss for other, loss in final.items() if other != method]
            worst = max(map(final_loss, rates[method].values()))
            chosen = rates[method][lr]
            rows.append(
                [f"{task} ({chosen[0]['entry']['split']})", f"`{method}`", f"{lr:g}"]
                + [str(len(chosen)), number(final[method]), number(worst), metric(chosen)]
                + first_at(chosen, min(rivals, default=-math.inf))
                + [number(fmean(r[key] for r in chosen)) for key in ("seconds", "updates")]
                + [number(fmean(r["evaluations"] / max(r["updates"], 1) for r in chosen))]
            )
    return markdown(header, rows)


def _rate(record: Record) -> float:
    return record["entry"]["experiment"]["optimizer"]["lr"]


def number(value: float) -> str:
    """Write a number to three digits."""
    return "diverged" if math.isinf(value) else cell_text(value)


def metric(records: Sequence[Record]) -> str:
    """The metric of the test examples, or of those for validation where tests are not touched."""
    found = [r.get("test", r.get("valid", {})).get(r["metric"]) for r in records]
    values = [value for value in found if value is not None]
    part = "test" if any("test" in r for r in records) else "valid"
    return f"{fmean(values):.4g} ({part})" if len(values) == len(records) else "–"


def first_at(records: Sequence[Record], target: float) -> list[str]:
    """Seconds and updates to a target, over seeds; or how many seeds got there, if not all."""
    found = [place for record in records if (place := reached(record, target)) is not None]
    if len(found) < len(records):
        return [f"{len(found)} of {len(records)}" if found else "–", "–"]
    return [number(fmean(place[i] for place in found)) for i in (1, 0)]
