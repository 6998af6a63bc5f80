"""The main comparison at a glance: one table, one line of counts, one figure.

Everything is computed from the compact runs that ``accu.json`` holds (:meth:`Arm.compact`), so that
a page can be made again without the run folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from snopt.lab.paper.arms import RIVALS
from snopt.lab.paper.curves import (
    FLAT,
    Curve,
    averaged,
    best_rival,
    clean,
    focus,
    grid,
    last_gain,
    lines,
)
from snopt.lab.paper.item import Cell, Table
from snopt.lab.paper.names import METHODS, TASKS, TUNED, metric_text
from snopt.lab.paper.scales import PARTS
from snopt.lab.report.summary import Stat, differ, stat

Compact: TypeAlias = Mapping[str, Any]
"""A method on a data set: its settings, and its runs; see :meth:`Arm.compact`."""
Compared: TypeAlias = Mapping[str, Mapping[str, Compact]]
"""Methods by data set, both by their names in tables."""
Verdict: TypeAlias = Literal["first", "tied", "behind"]

OURS = METHODS["snopt"]
READING = (
    "Validation performance over CPU seconds: further left, and higher (accuracy) or lower "
    "(likelihood), is better. SNOpt (default) and the best rival are emphasised, with a band of "
    "one deviation over seeds; starts and spikes are clipped."
)


def _tested(arms: Mapping[str, Compact]) -> dict[str, Stat | None]:
    """Return the test metric over seeds, by method."""
    return {name: stat(run["test"] for run in arm["runs"]) for name, arm in arms.items()}


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


def sign_of(arms: Mapping[str, Compact]) -> int:
    """Return 1 if large values of the metric are good, else -1."""
    return 1 if next(iter(arms.values()))["mode"] == "max" else -1


def verdict(stats: Mapping[str, Stat | None], sign: int) -> Verdict | None:
    """Compare SNOpt's defaults with the best rival; None without two seeds of both."""
    ours = stats.get(OURS)
    rivals = [s for name, s in stats.items() if s and not name.startswith("SNOpt")]
    best = max(rivals, key=lambda found: sign * found.mean, default=None)
    if ours is None or best is None or min(ours.count, best.count) < 2:
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
    if not arms:
        return None
    curves = {name: validated(arm) for name, arm in arms.items()}
    name = best_rival(curves, "max" if sign_of(arms) > 0 else "min")
    best = best_of(arms[name]) if name else None
    return (name, *best) if name and best else None


def best_of(arm: Compact) -> tuple[float, float] | None:
    """Return the best mean validation value of a method, and its CPU seconds to it."""
    curve = validated(arm)
    if curve is None:
        return None
    place = int(np.argmax(sign_of({"": arm}) * np.array(curve["mean"])))
    return curve["mean"][place], curve["seconds"][place]


def until(arm: Compact, target: float, key: str = "seconds") -> float | None:
    """Return CPU seconds, or iterations, until the mean validation value reaches a target."""
    curve, sign = validated(arm), sign_of({"": arm})
    pairs = zip(curve[key], curve["mean"], strict=True) if curve else ()
    return next((place for place, value in pairs if sign * value >= sign * target), None)


# -------------------------------------------------------------------------------------- table


def headline(compared: Compared) -> Table:
    """Return the table of all data sets and methods."""
    names = _methods(compared)
    rows: list[list[Cell]] = []
    for task, arms in compared.items():
        unit = "%" if next(iter(arms.values()))["metric"] == "accuracy" else "nats"
        stats, best = _tested(arms), _best(arms)
        cells: list[Cell] = []
        for name in names:
            arm, found = arms.get(name, {}), stats.get(name)
            text = metric_text(found, arm.get("metric", ""), arm.get("seeds", 0))
            failed = found is None and bool(arm.get("runs"))
            cells.append("failed" if failed else f"**{text}**" if name == best else text)
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
    stats = {name: s for name, s in _tested(arms).items() if s is not None}
    if len(stats) < 2 or min(s.count for s in stats.values()) < 2:
        return None
    best = max(stats, key=lambda name: sign_of(arms) * stats[name].mean)
    apart = all(differ(stats[best], other, 0) for name, other in stats.items() if name != best)
    return best if apart else None


def _times(arms: Mapping[str, Compact]) -> str:
    target = target_of(arms)
    if target is None or not arms.get(OURS, {}).get("runs"):
        return "-"
    name, value, theirs = target
    ours = until(arms[OURS], value)
    return f"{'never' if ours is None else f'{ours:.0f}'}; {name} {theirs:.0f}"


def shares(compared: Compared) -> Table:
    """Return the table of seconds to the best value of each rival."""
    names = [n for n in _methods(compared) if n not in (OURS, METHODS[TUNED])]
    rows: list[list[Cell]] = [
        [task, *(_share(arms.get(OURS), arms.get(name)) for name in names)]
        for task, arms in compared.items()
    ]
    ahead = [_ahead([row[place] for row in rows]) for place in range(1, len(names) + 1)]
    rows.append(["half the seconds or less", *ahead])
    caption = (
        "CPU seconds until SNOpt (default) is as good on validation data as the best value of each "
        "method, over the seconds of that method. Never: its own best value is worse. Below 1, "
        "SNOpt is faster."
    )
    return Table(caption, ["data set", *names], rows)


def _methods(compared: Compared) -> list[str]:
    """Return the names of all methods that were run, in the order of the comparison."""
    found = {name for arms in compared.values() for name in arms}
    return [METHODS[name] for name in RIVALS if METHODS[name] in found]


def _share(ours: Compact | None, theirs: Compact | None) -> Cell:
    """Return the share of the other method's seconds that ours needs."""
    target = None if theirs is None else best_of(theirs)
    if ours is None or target is None or not ours["runs"]:
        return None
    value, seconds = target
    place = until(ours, value)
    return "never" if place is None else f"{place / seconds:.2f}"


def _ahead(cells: list[Cell]) -> str:
    known = [cell for cell in cells if cell is not None]
    return f"{sum(cell != 'never' and float(cell) <= 0.5 for cell in known)} of {len(known)}"


# -------------------------------------------------------------------------------- sentences


def counts(compared: Compared) -> str:
    """Say on how many data sets SNOpt's defaults are first, tied and behind."""
    at_end: dict[str, Verdict | None] = {}
    in_time: dict[str, Verdict | None] = {}
    for task, arms in compared.items():
        at_end[task] = verdict(_tested(arms), sign_of(arms))
        if (budget := budget_of(arms.values())) is not None:
            timed = {name: within(arm, budget) for name, arm in arms.items()}
            in_time[task] = verdict(timed, sign_of(arms))
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


def remarks(compared: Compared, *, parts: bool) -> list[str]:
    """Say where the best rival still improves, what was not run, and which data are ``parts``."""
    rising = []
    for task, arms in compared.items():
        name = (target_of(arms) or ("",))[0]
        curve = validated(arms[name]) if name else None
        if curve and last_gain(curve["mean"], arms[name]["mode"]) >= FLAT:
            rising.append(f"{task} ({name})")
    there = [text for task, text in PARTS.items() if parts and TASKS[task] in compared]
    said = {
        "The best rival is still improving at the end on": ", ".join(rising),
        "Not run yet": ", ".join(task for task in TASKS.values() if task not in compared),
        "Parts of data": "; ".join(there),
    }
    return [f"{words}: {found}." for words, found in said.items() if found]


def draw(figure: Any, compared: Compared) -> None:
    """Draw the validation metric against CPU seconds, a panel per data set."""
    for axis, (task, arms) in zip(grid(figure, len(compared))[0], compared.items(), strict=True):
        drawn = {n: found for n, arm in arms.items() if (found := validated(arm)) is not None}
        some = next(iter(arms.values()))
        percent = some["metric"] == "accuracy"
        clean(axis, "CPU seconds", "", f"{task}, {'accuracy, %' if percent else 'nats'}")
        if not drawn:
            continue
        for found in drawn.values() if percent else ():
            found |= {key: [100 * v for v in found[key]] for key in ("mean", "below", "above")}
        ends = sorted(found["seconds"][-1] for found in drawn.values())
        axis.set_xlim(0, min(ends[-1], 2 * ends[len(ends) // 2]))
        focus(axis, [found["mean"] for found in drawn.values()], some["mode"])
        lines(axis, drawn, "seconds", strong=(OURS, best_rival(drawn, some["mode"])))
