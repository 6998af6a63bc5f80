"""Measure the engine against torchdiffeq on the four workloads.

    python -m benchmarks.measure [--cases ...] [--repeats N] [--quick] [--out FILE]

Writes to JSON: time of forward plus backward (interleaved), evaluations of the
field, gradient error and peak memory. ``--parts`` measures only some of these and keeps
the others of an existing file; ``--quick`` times a few rounds, prints, and writes nothing
unless given ``--out``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy import gradients, reference, relative_errors
from benchmarks.cases import CASES
from benchmarks.contenders import BASELINE, CONTENDERS, SETTLING, Trial
from benchmarks.environment import environment
from benchmarks.timing import interleave, ratios, summary
from snopt.lab.paper.peak import in_fresh_process, rise

RESULTS = Path(__file__).parent / "results"
Measured = dict[str, dict[str, object]]
"""What was measured of each contender, by its name."""


def measure_time(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Time forward plus backward of each contender, side by side."""
    trials = {name: Trial(name, case, form) for name in names}
    times = interleave({name: trial.run for name, trial in trials.items()}, repeats, SETTLING)
    return {
        name: {
            "rounds": repeats,
            "seconds": summary(times[name]),
            "ratio": summary(ratios(times, name, BASELINE)),
        }
        for name in names
    }


def measure_work(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Count evaluations of the field in one iteration."""
    counts: Measured = {}
    for name in names:
        trial = Trial(name, case, form)
        trial.settle()
        forward, backward = trial.evaluations()
        counts[name] = {"forward": forward, "backward": backward}
    return counts


def measure_accuracy(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Compare each contender's gradient with the reference's."""
    exact, own_error = reference(case)
    errors: Measured = {"reference": dict(own_error)}
    for name in names:
        trial = Trial(name, case, form)
        trial.settle()
        found = gradients(trial.workload.field.parameters(), trial.inputs)
        errors[name] = dict(relative_errors(found, exact))
    return errors


def measure_memory(case: str, form: str, names: Sequence[str], repeats: int) -> Measured:
    """Measure how much memory one iteration takes at its peak, each in a fresh process."""
    return {
        name: {"megabytes": in_fresh_process(__spec__.name, "--peak", case, form, name)}
        for name in names
    }


PARTS = {
    "time": measure_time,
    "work": measure_work,
    "accuracy": measure_accuracy,
    "memory": measure_memory,
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measure")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--forms", nargs="+", help="only these forms of the fields")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--repeats", type=int, default=11, help="rounds of timing")
    parser.add_argument("--quick", action="store_true", help="three rounds, time and work only")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/engine.json")
    parser.add_argument("--peak", nargs=3, metavar=("CASE", "FORM", "CONTENDER"))
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.repeats, chosen.parts = 3, ["time", "work"]
    elif chosen.out is None:
        chosen.out = RESULTS / "engine.json"
    return chosen


def main() -> None:
    """Measure what the command line asks for, writing after each part."""
    chosen = arguments()
    if chosen.peak:
        case, form, name = chosen.peak
        print(json.dumps(rise(Trial(name, case, form).run)))
        return
    names = [BASELINE, *(name for name in chosen.contenders if name != BASELINE)]
    for case in chosen.cases:
        for form in CASES[case].forms:
            if chosen.forms and form not in chosen.forms:
                continue
            able = [name for name in names if runs(name, form)]
            for part in chosen.parts:
                measured = PARTS[part](case, form, able, chosen.repeats)
                show(case, form, part, measured)
                if chosen.out:
                    keep(chosen.out, case, form, part, measured)


def runs(name: str, form: str) -> bool:
    """Tell whether a contender is measured on a form: autograd inside it stops the compiler."""
    return not (form == "autograd" and name.endswith("compiled"))


def show(case: str, form: str, part: str, measured: Measured) -> None:
    """Print one line for each contender."""
    for name, figures in measured.items():
        medians = {key: v["median"] if isinstance(v, dict) else v for key, v in figures.items()}
        text = "  ".join(f"{key} {value:.4g}" for key, value in medians.items())
        print(f"{case:14} {form:9} {part:9} {name:20} {text}", flush=True)


def keep(file: Path, case: str, form: str, part: str, measured: Measured) -> None:
    """Put one part into the file, leaving the others and other contenders as they are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(file.read_text()) if file.exists() else {}
    place = kept.setdefault(case, {}).setdefault(form, {}).setdefault(part, {})
    if part == "time":
        place.clear()  # times of different runs are not to be compared
    place.setdefault("contenders", {}).update(measured)
    place["environment"] = environment()
    file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
