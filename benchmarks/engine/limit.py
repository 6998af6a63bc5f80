"""Loss and gradient against a lower bound: the bare evaluations of the field (``bound.py``).

CPU seconds of one thread, interleaved. The eager engine is divided by the eager bound, the compiled
engine by the compiled one, in which an evaluation and its pull-back are one call. Beside them:
``bound_step``, with as many evaluations in one compiled call as a step has, and ``around``, the
model with its solve replaced by the identity. ``--profile`` adds the longest operators of one
iteration of each; torch's profiler slows down what it measures, so read the shares.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine.bound import STAGES, Bound, recorded
from benchmarks.engine.cases import CASES
from benchmarks.engine.contenders import CONTENDERS, SETTLING, Trial
from benchmarks.files import RESULTS, WORKLOADS, keep, spread
from benchmarks.measuring import CPU, interleave, over
from snopt.lab.paper.timing import summary

BOUNDS = {"bound": 0, "bound_compiled": 1, "bound_step": STAGES}
"""Evaluations per compiled call."""
OVER = {
    "snopt_checkpoint": ("bound",),
    "snopt_compiled": ("bound_compiled", "bound_step"),
    "around": ("bound",),
}
"""What each is divided by."""
MAKERS = {**CONTENDERS, "around": lambda workload: lambda state: state}


def contenders(
    case: str, form: str, over: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Callable[[], None]], dict[str, Any]]:
    """Return what is timed, settled and compiled, and the work of the bound."""
    trials = {name: Trial(name, case, form, MAKERS).settled() for name in over}
    eager = trials["snopt_checkpoint"]
    calls, pulled = recorded(eager)
    field = eager.workload.field
    needed = dict.fromkeys(bound for bounds in over.values() for bound in bounds)
    bounds = {name: Bound(field, calls, pulled, BOUNDS[name]) for name in needed}
    for bound in bounds.values():
        bound.run()
    work = {
        "evaluations": len(calls),
        "pull_backs": pulled,
        "engine": {name: trials[name].evaluations() for name in over if name != "around"},
    }
    return {name: each.run for name, each in {**trials, **bounds}.items()}, work


def measure(case: str, repeats: int, *, eager: bool, profiled: bool) -> dict[str, Any]:
    """Measure one workload."""
    divided = {n: each for n, each in OVER.items() if not (eager and n == "snopt_compiled")}
    form = CASES[case].forms[-1]  # the one that a compiler can trace
    runs, work = contenders(case, form, divided)
    times = interleave(runs, repeats, clock=CPU)
    found = {
        "form": form,
        "rounds": repeats,
        "settling": SETTLING,
        "work": work,
        "seconds": {name: summary(each) for name, each in times.items()},
        "over": {
            name: {bound: over(times, name, bound) for bound in bounds}
            for name, bounds in divided.items()
        },
    }
    if profiled:
        found["profile"] = {name: longest(run) for name, run in runs.items()}
    return found


def longest(run: Callable[[], None], count: int = 12) -> list[tuple[str, int, float]]:
    """Return name, calls and own seconds of the longest operators of one call.

    The solver's Python code counts as ``_Checkpoint`` and ``_CheckpointBackward``.
    """
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        run()
    events = sorted(watched.key_averages(), key=lambda e: e.self_cpu_time_total, reverse=True)
    return [(e.key, e.count, 1e-6 * e.self_cpu_time_total) for e in events[:count]]


def show(case: str, found: dict[str, Any]) -> None:
    """Print one line for each ratio."""
    for name, bounds in found["over"].items():
        for bound, ratio in bounds.items():
            print(f"{case:20} {name:18} over {bound:15} {spread(ratio, 3)}", flush=True)
    for name, operators in found.get("profile", {}).items():
        for operator, calls, seconds in operators:
            print(f"{case:20} {name:18} {seconds:8.4f} s {calls:6} {operator:.60}", flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", default=list(WORKLOADS), choices=CASES)
    parser.add_argument("--repeats", type=int, default=9, help="rounds of timing")
    parser.add_argument("--eager", action="store_true", help="leave out what is compiled")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    parser.add_argument("--out", type=Path, default=RESULTS / "limit.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure the workloads, writing after each."""
    torch.set_num_threads(1)
    for case in chosen.cases:
        found = measure(case, chosen.repeats, eager=chosen.eager, profiled=chosen.profile)
        show(case, found)
        keep(chosen.out, found, case)
