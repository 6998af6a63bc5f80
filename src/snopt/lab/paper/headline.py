"""The main comparison at a glance: one table, one line of counts, one figure.

Everything is computed from the compact runs that ``accu.json`` holds (:meth:`Arm.compact`), so that
a page can be made again without the run folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from snopt.lab.paper.curves import FLAT, Curve, averaged, clean, focus, last_gain, lines
from snopt.lab.paper.item import Cell, Table
from snopt.lab.paper.names import METHODS, TASKS, metric_text
from snopt.lab.paper.scales import PARTS
from snopt.lab.report.summary import Stat, differ, stat

T = TypeVar("T")

Compact: TypeAlias = Mapping[str, Any]
"""A method on a data set: its settings, and its runs; see :meth:`Arm.compact`."""
Compared: TypeAlias = Mapping[str, Mapping[str, Compact]]
"""Methods by data set, both by their names in tables."""
Verdict: TypeAlias = Literal["first", "tied", "behind"]

OURS = METHODS["snopt"]
COLUMNS = 3
"""Panels in a row of the figure."""


def tested(arm: Compact) -> Stat | None:
    """Return the test metric over seeds."""
    return stat(run["test"] for run in arm["runs"])


def validated(arm: Compact) -> Curve | None:
    """Return the validation metric along a training, averaged over seeds."""
    columns = ("iteration", "seconds", "valid")
    return averaged([np.array([run[name] for name in columns]).T for run in arm["runs"]])


def within(arm: Compact, budget: float) -> Stat | None:
    """Return the best validation value within so many CPU seconds, over seeds."""
    choose = max if arm["mode"] == "max" else min
    known = (
        [v for s, v in zip(run["seconds"], run["valid"], strict=True) if s <= budget]
        for run in arm["runs"]
    )
    return stat(choose(values, default=None) for values in known)


def rivals_of(named: Mapping[str, T]) -> dict[str, T]:
    """Return the methods other than SNOpt's."""
    return {name: each for name, each in named.items() if not name.startswith("SNOpt")}


def sign_of(arm: Compact) -> int:
    """Return 1 if large values of the metric are good, else -1."""
    return 1 if arm["mode"] == "max" else -1


def verdict(stats: Mapping[str, Stat | None], sign: int) -> Verdict | None:
    """Compare SNOpt's defaults with the best rival; None without two seeds of both."""
    ours = stats.get(OURS)
    rivals = [found for found in rivals_of(stats).values() if found is not None]
    if ours is None or not rivals:
        return None
    best = max(rivals, key=lambda found: sign * found.mean)
    if min(ours.count, best.count) < 2:
        return None
    if not differ(ours, best, 0):
        return "tied"
    return "first" if sign * ours.mean > sign * best.mean else "behind"


def budget_of(arms: Iterable[Compact]) -> float | None:
    """Return the CPU seconds of the fastest method among those that made all updates."""
    finished = ([run for run in arm["runs"] if run["status"] == "finished"] for arm in arms)
    return min((max(run["seconds"][-1] for run in runs) for runs in finished if runs), default=None)


def target_of(arms: Mapping[str, Compact]) -> tuple[str, float, float] | None:
    """Return the rival with the best mean validation value, this value and its CPU seconds."""
    found = []
    for name, arm in rivals_of(arms).items():
        if (curve := validated(arm)) is not None:
            best = int(np.argmax(sign_of(arm) * np.array(curve["mean"])))
            value = curve["mean"][best]
            found.append((sign_of(arm) * value, (name, value, curve["seconds"][best])))
    return max(found, key=lambda each: each[0])[1] if found else None


def until(arm: Compact, target: float, key: str = "seconds") -> float | None:
    """Return CPU seconds, or iterations, until the mean validation value reaches a target."""
    curve, sign = validated(arm), sign_of(arm)
    pairs = zip(curve[key], curve["mean"], strict=True) if curve else ()
    return next((place for place, value in pairs if sign * value >= sign * target), None)


def _times(arms: Mapping[str, Compact]) -> str:
    target = target_of(arms)
    if target is None or not arms.get(OURS, {}).get("runs"):
        return "-"
    name, value, theirs = target
    ours = until(arms[OURS], value)
    return f"{'never' if ours is None else f'{ours:.0f}'}; {name} {theirs:.0f}"


def _text(arm: Compact, *, bold: bool) -> str:
    found = tested(arm)
    if found is None:
        return "-" if not arm["runs"] else "failed"
    text = metric_text(found, arm["metric"])
    if found.count < arm["seeds"]:
        text += f" ({found.count} of {arm['seeds']} seeds)"
    return f"**{text}**" if bold else text


def headline(compared: Compared) -> Table:
    """Return the table of all data sets and methods."""
    names = dict.fromkeys(name for arms in compared.values() for name in arms)
    rows: list[list[Cell]] = []
    for task, arms in compared.items():
        unit = "%" if next(iter(arms.values()))["metric"] == "accuracy" else "nats"
        cells = [_text(arms[n], bold=n == _best(arms)) if n in arms else "-" for n in names]
        rows.append([f"{task}, {unit}", *cells, _times(arms)])
    caption = (
        "Test accuracy in %, or negative log-likelihood in nats (less is better): mean ± standard "
        "deviation over seeds. Bold: the best, where it differs from every other method by more "
        "than both deviations. Last column: CPU seconds until SNOpt (default) is as good as the "
        "best value of the best rival on validation data, and those of this rival."
    )
    return Table(caption, ["data set", *names, "CPU seconds to the rival's best"], rows)


def _best(arms: Mapping[str, Compact]) -> str | None:
    """Return the method whose mean is better than all others by more than the deviations."""
    stats = {name: s for name, arm in arms.items() if (s := tested(arm)) is not None}
    if len(stats) < 2 or min(s.count for s in stats.values()) < 2:
        return None
    sign = sign_of(next(iter(arms.values())))
    best = max(stats, key=lambda name: sign * stats[name].mean)
    apart = all(differ(stats[best], other, 0) for name, other in stats.items() if name != best)
    return best if apart else None


def counts(compared: Compared) -> str:
    """Say on how many data sets SNOpt's defaults are first, tied and behind."""
    at_end: dict[str, Verdict | None] = {}
    in_time: dict[str, Verdict | None] = {}
    for task, arms in compared.items():
        sign = sign_of(next(iter(arms.values())))
        at_end[task] = verdict({name: tested(arm) for name, arm in arms.items()}, sign)
        if (budget := budget_of(arms.values())) is not None:
            timed = {name: within(arm, budget) for name, arm in arms.items()}
            in_time[task] = verdict(timed, sign)
    return (
        "**SNOpt with default settings, not tuned, against the best rival, tuned** (a tie: the "
        f"difference is within the deviations). Test performance: {_counted(at_end)}. Validation "
        "performance in equal CPU seconds, those that the fastest method needs: "
        f"{_counted(in_time)}."
    )


def _counted(found: Mapping[str, Verdict | None]) -> str:
    by_word = {word: [t for t, v in found.items() if v == word] for word in get_args(Verdict)}
    total = sum(map(len, by_word.values()))
    if not total:
        return "no data set with two seeds of both yet"
    parts = [
        f"{word} on {len(tasks)}" + (f" ({', '.join(tasks)})" if tasks else "")
        for word, tasks in by_word.items()
    ]
    return f"{'; '.join(parts)}, of {total} data sets"


def rising(compared: Compared) -> str:
    """Name the data sets on which the best rival's validation curve is not flat at its end."""
    found = []
    for task, arms in compared.items():
        name = (target_of(arms) or ("",))[0]
        curve = validated(arms[name]) if name else None
        if curve and last_gain(curve["mean"], arms[name]["mode"]) >= FLAT:
            found.append(f"{task} ({name})")
    return f"The best rival is still improving at the end on: {', '.join(found) or 'none'}."


def not_run(compared: Compared) -> str:
    """Name the data sets without runs in one line; empty if there are none."""
    empty = [task for task in TASKS.values() if task not in compared]
    return f"Not run yet: {', '.join(empty)}." if empty else ""


def parts_of_data(compared: Compared) -> str:
    """Say in one line which data are not the whole data sets of the paper."""
    there = [text for task, text in PARTS.items() if TASKS[task] in compared]
    return f"Parts of data: {'; '.join(there)}." if there else ""


def draw(figure: Any, compared: Compared) -> None:
    """Draw the validation metric against CPU seconds, a panel per data set."""
    rows = -(-len(compared) // COLUMNS)
    figure.set_size_inches(4.3 * COLUMNS, 2.9 * rows)
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for axis in axes[len(compared) :]:
        axis.set_visible(False)
    for axis, (task, arms) in zip(axes, compared.items(), strict=False):
        drawn = {n: found for n, arm in arms.items() if (found := validated(arm)) is not None}
        some = next(iter(arms.values()))
        percent = some["metric"] == "accuracy"
        if percent:
            for found in drawn.values():
                found |= {key: [100 * v for v in found[key]] for key in ("mean", "below", "above")}
        ends = sorted(found["seconds"][-1] for found in drawn.values())
        axis.set_xlim(0, min(ends[-1], 2 * ends[len(ends) // 2]))
        focus(axis, [found["mean"] for found in drawn.values()], some["mode"])
        word = "accuracy, %" if percent else "negative log-likelihood"
        clean(axis, "CPU seconds", f"validation {word}", task)
        lines(axis, drawn, "seconds")
