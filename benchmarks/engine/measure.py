"""Measure the engine against torchdiffeq, or against another source tree of this package.

Against torchdiffeq: time of forward plus backward (interleaved), evaluations of the field, gradient
error and peak memory, written to JSON part by part. ``--quick`` times three rounds, prints, and
writes nothing unless given ``--out``.

``--against SRC`` times this tree's engine over that of the tree in the folder SRC, in CPU seconds
of one thread, a process for each tree and rounds interleaved.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine import against
from benchmarks.engine.accuracy import reference, relative_errors
from benchmarks.engine.cases import CASES
from benchmarks.engine.contenders import BASELINE, CONTENDERS, SETTLING, Trial
from benchmarks.files import RESULTS, WORKLOADS, keep, read, save
from benchmarks.measuring import compared, peak

Measured = dict[str, dict[str, Any]]
"""Results by contender."""


def measure_time(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Time forward plus backward of each contender, side by side."""
    runs = {name: Trial(name, case, form).run for name in names}
    found = compared(runs, repeats, BASELINE, SETTLING)
    return {name: {"rounds": repeats, **each} for name, each in found.items()}


def measure_work(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Count evaluations of the field in one iteration."""
    counts = {name: Trial(name, case, form).settled().evaluations() for name in names}
    return {name: {"forward": f, "backward": b} for name, (f, b) in counts.items()}


def measure_accuracy(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Compare each contender's gradient with the reference's."""
    exact, own_error = reference(case)
    found = {name: Trial(name, case, form).settled().gradients() for name in names}
    return {"reference": own_error} | {n: relative_errors(g, exact) for n, g in found.items()}


def measure_memory(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Measure the peak memory of one iteration, each in a fresh process."""
    return {name: {"megabytes": peak(Trial, name, case, form)} for name in names}


PARTS = {
    "time": measure_time,
    "work": measure_work,
    "accuracy": measure_accuracy,
    "memory": measure_memory,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--against", type=Path, metavar="SRC", help="another tree's src folder")
    parser.add_argument("--cases", nargs="+", default=list(WORKLOADS), choices=CASES)
    parser.add_argument("--forms", nargs="+", help="only these forms of the fields")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, help="default: all")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: all")
    parser.add_argument("--repeats", type=int, default=11, help="rounds of timing")
    parser.add_argument("--quick", action="store_true", help="three rounds, time and work only")
    parser.add_argument(
        "--out", type=Path, help="default: results/engine.json; none with --against"
    )


def main(chosen: argparse.Namespace) -> None:
    """Measure what was requested, writing after each part."""
    if chosen.quick:
        chosen.repeats = 3
    measure_against(chosen) if chosen.against else measure_parts(chosen)


def measure_against(chosen: argparse.Namespace) -> None:
    """Compare with another source tree."""
    if chosen.forms or chosen.contenders or chosen.parts:
        raise SystemExit("--forms, --contenders and --parts are of the run against torchdiffeq")
    found = against.compare(chosen.against, chosen.cases, chosen.repeats)
    if chosen.out:
        save(chosen.out, found)


def measure_parts(chosen: argparse.Namespace) -> None:
    """Compare with torchdiffeq."""
    out = chosen.out or (None if chosen.quick else RESULTS / "engine.json")
    names = [BASELINE, *(name for name in chosen.contenders or CONTENDERS if name != BASELINE)]
    parts = chosen.parts or (["time", "work"] if chosen.quick else list(PARTS))
    for case in chosen.cases:
        for form in (form for form in CASES[case].forms if form in (chosen.forms or [form])):
            able = [name for name in names if runs(name, form)]
            for part in parts:
                measured = PARTS[part](case, form, able, chosen.repeats)
                show(case, form, part, measured)
                if out:
                    store(out, case, form, part, measured)


def runs(name: str, form: str) -> bool:
    """Return whether a contender is measured on a form; autograd inside it stops the compiler."""
    return not (form == "autograd" and name.endswith("compiled"))


def show(case: str, form: str, part: str, measured: Measured) -> None:
    """Print one line for each contender."""
    for name, figures in measured.items():
        medians = {key: v["median"] if isinstance(v, dict) else v for key, v in figures.items()}
        text = "  ".join(f"{key} {value:.4g}" for key, value in medians.items())
        print(f"{case:14} {form:9} {part:9} {name:20} {text}", flush=True)


def store(file: Path, case: str, form: str, part: str, measured: Measured) -> None:
    """Store one part, keeping other contenders unless it is time."""
    kept = read(file).get(case, {}).get(form, {}).get(part, {}).get("contenders", {})
    if part == "time":
        kept = {}  # times of different runs cannot be compared
    keep(file, {"contenders": {**kept, **measured}}, case, form, part)
